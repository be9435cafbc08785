"""`Module`: a torch module that also says what one training step is. It knows neither devices nor ranks."""

from __future__ import annotations

from typing import Any

import torch

from gpulayer.errors import InvalidSpec, Unsupported


class Module(torch.nn.Module):
    """A model with its training: override `training_step` and `configure_optimizers`, and `validation_step` to validate."""

    def __init__(self) -> None:
        super().__init__()
        self._gl_step_logs: dict[str, tuple[Any, int | None]] = {}

    def training_step(self, batch: Any, batch_index: int) -> Any:  # noqa: ARG002 - overridden
        """The loss of one batch, as a tensor or under the key `loss` of a dictionary."""
        raise Unsupported(f"{type(self).__name__} has no training_step.", fix="Define training_step(self, batch, batch_index).")

    def validation_step(self, batch: Any, batch_index: int) -> Any:  # noqa: ARG002 - overridden
        """Look at one batch that training does not see; what counts is what it logs."""
        raise Unsupported(f"{type(self).__name__} has no validation_step.", fix="Define validation_step(self, batch, batch_index).")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimizer of this module's parameters; called once per fit, when they lie on their device."""
        raise Unsupported(f"{type(self).__name__} has no configure_optimizers.", fix="Define configure_optimizers(self).")

    def log(self, name: str, value: Any, batch_size: int | None = None) -> None:
        """Record a value of this step; an epoch's figure is the mean over all ranks, weighted by batch size.

        A tensor stays on its device and is read at the end of the epoch.

        Args:
            name: appears in `trainer.callback_metrics` and `trainer.history`.
            value: a number, or a tensor with one element.
            batch_size: the weight of this value; by default the length of the batch's first tensor.
        """
        if isinstance(value, torch.Tensor):
            if value.numel() != 1:
                raise InvalidSpec(
                    "A logged value is one number.", asked=f"log({name!r}, …) with shape {tuple(value.shape)}", fix="Log its mean."
                )
            # Kept as a tensor: float(value) would make the CPU wait for the device on every step (ADR-0016).
            value = value.detach()
        self._gl_step_logs[name] = (value, batch_size)


def step_logs(module: Module) -> dict[str, tuple[Any, int | None]]:
    """What the module has logged since the loop last took it; the loop empties it after every step."""
    return module._gl_step_logs  # noqa: SLF001 - not a method of Module: names there belong to its user
