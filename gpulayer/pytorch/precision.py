"""Which number formats a training step computes in, and where each is possible (ADR-0014).

An unsupported combination is refused, never replaced by another precision. Runs in every process that trains.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from gpulayer.errors import InvalidSpec

SUPPORTED: dict[str, tuple[str, ...]] = {
    "32-true": ("cpu", "cuda", "mps"),
    "bf16-mixed": ("cpu", "cuda"),
    "16-mixed": ("cuda",),
}
"""Precision → the torch device types that it runs on."""


def check_precision(precision: str, device_type: str | None = None) -> None:
    """Refuse a precision that does not exist, or that this device type does not run; None means not known yet.

    Raises:
        InvalidSpec: naming both, and what would work.
    """
    if precision not in SUPPORTED:
        raise InvalidSpec("There is no such precision.", asked=f"precision={precision!r}", fix=f"Use one of {', '.join(SUPPORTED)}.")
    if device_type is not None and device_type not in SUPPORTED[precision]:
        kinds = " or ".join(SUPPORTED[precision])
        raise InvalidSpec(
            f"{precision} needs {kinds}.",
            asked=f"precision={precision!r}",
            found=f"device {device_type}",
            fix=f"Use precision='32-true', or a device of kind {kinds}.",
        )


class Precision:
    """One precision on one device: the context of a forward pass, the backward pass and the optimizer's step."""

    def __init__(self, name: str, device: torch.device) -> None:
        check_precision(name, device.type)
        if name == "bf16-mixed" and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
            raise InvalidSpec(
                "This GPU does not compute in bfloat16.",
                asked="precision='bf16-mixed'",
                found=torch.cuda.get_device_name(device),
                fix="Use precision='16-mixed' or '32-true'.",
            )
        self.name = name
        self._device_type = device.type
        self._dtype = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(name)
        self._scaler: Any = torch.amp.GradScaler(device.type) if name == "16-mixed" else None

    def forward_context(self) -> AbstractContextManager[Any]:
        """The context for a forward pass; it may be entered once."""
        return nullcontext() if self._dtype is None else torch.autocast(self._device_type, dtype=self._dtype)

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of this loss to the parameters' gradients."""
        if self._scaler is None:
            loss.backward()
        else:
            self._scaler.scale(loss).backward()

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Apply the gradients; with a scaler a step whose gradients overflowed is left out, and the scale shrinks."""
        if self._scaler is None:
            optimizer.step()
        else:
            # Reads one flag from the device: skipping a step is the CPU's decision. Only 16-mixed pays for it.
            self._scaler.step(optimizer)
            self._scaler.update()
