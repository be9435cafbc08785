"""How the ranks of a training share their work: one rank alone, or DDP. Runs in every process that trains."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Strategy(Protocol):
    """What the loop needs to know about parallel ranks."""

    def wrap(self, module: torch.nn.Module) -> torch.nn.Module:
        """The module as its forward pass is to be called; it shares the parameters of the one given."""
        ...

    def hold_gradients(self, wrapped: torch.nn.Module) -> AbstractContextManager[Any]:
        """A context in which backward passes add to the local gradients only."""
        ...

    def align_buffers(self, module: torch.nn.Module) -> None:
        """Give every rank rank 0's buffers, such as running means, which DDP aligns only before a training step."""
        ...


class SingleRank:
    """One rank: nothing to share."""

    def wrap(self, module: torch.nn.Module) -> torch.nn.Module:
        return module

    def hold_gradients(self, wrapped: torch.nn.Module) -> AbstractContextManager[Any]:  # noqa: ARG002
        return nullcontext()

    def align_buffers(self, module: torch.nn.Module) -> None:
        pass


class DataParallel:
    """Every rank holds the whole model and a share of the data; gradients are averaged over the ranks."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def wrap(self, module: torch.nn.Module) -> torch.nn.Module:
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return module  # DDP refuses a module that has nothing to reduce
        device_ids = [self._device.index] if self._device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=device_ids)

    def hold_gradients(self, wrapped: torch.nn.Module) -> AbstractContextManager[Any]:
        return wrapped.no_sync() if isinstance(wrapped, DistributedDataParallel) else nullcontext()

    def align_buffers(self, module: torch.nn.Module) -> None:
        for buffer in module.buffers():
            dist.broadcast(buffer, src=0)
