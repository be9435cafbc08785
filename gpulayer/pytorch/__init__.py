"""PyTorch on GPUlayer, in three layers (ADR-0014): `launch()`, `Runtime`, and `Module` with `Trainer`.

Importing this loads no torch. `launch()` and `is_launcher_process()` work without it, so that a launching machine needs
none; the other names load it on first use. Runs in scripts, kernels and ranks.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gpulayer.errors import Unsupported
from gpulayer.pytorch.launch import is_launcher_process, launch

if TYPE_CHECKING:
    from gpulayer.pytorch.module import Module
    from gpulayer.pytorch.runtime import Runtime
    from gpulayer.pytorch.trainer import Trainer

_NEED_TORCH = {
    "Module": "gpulayer.pytorch.module",
    "Runtime": "gpulayer.pytorch.runtime",
    "Trainer": "gpulayer.pytorch.trainer",
}

__all__ = ["Module", "Runtime", "Trainer", "is_launcher_process", "launch"]


def __getattr__(name: str) -> Any:
    try:
        home = _NEED_TORCH[name]
    except KeyError:
        raise AttributeError(f"module 'gpulayer.pytorch' has no attribute {name!r}") from None
    try:
        value = getattr(importlib.import_module(home), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("torch", "safetensors", "numpy"):
            raise
        raise Unsupported(
            f"gpulayer.pytorch.{name} needs {package}, which this environment does not have.",
            fix="Install torch and safetensors, or GPUlayer with its extra [torch].",
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
