"""The training loop: epochs, windows of micro-steps, one optimizer step a window, validation, and each epoch's means.

Nothing in it reads from the device; an epoch's sums are read once, when it is over (ADR-0016). Runs in every process that
trains, the same on one rank and on many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gpulayer.errors import InvalidSpec
from gpulayer.pytorch.data import batch_size_of, set_epoch, windows
from gpulayer.pytorch.module import Module, step_logs
from gpulayer.pytorch.runtime import Runtime
from gpulayer.runtime import rank_channel

LOSS = "train_loss"
"""Logged by the loop itself, unless the module logs a value under this name."""

EpochFigures = dict[str, float]


class EpochMeans:
    """Weighted sums of what an epoch's steps log: one running sum a name, on the device that its values live on."""

    def __init__(self) -> None:
        self._sums: dict[str, torch.Tensor | float] = {}
        self._weights: dict[str, int] = {}

    def add(self, name: str, value: torch.Tensor | float, weight: int) -> None:
        if name not in self._sums:
            self._weights[name] = 0
            self._sums[name] = _zero_like(value) if isinstance(value, torch.Tensor) else 0.0
        total = self._sums[name]
        if isinstance(total, torch.Tensor) and isinstance(value, torch.Tensor):
            total.add_(value.reshape(()), alpha=weight)
        else:
            self._sums[name] = total + value * weight
        self._weights[name] += weight

    def read(self) -> dict[str, tuple[float, int]]:
        """Each name's sum and weight as numbers; here the CPU waits for the device, once."""
        on_device = {name: total for name, total in self._sums.items() if isinstance(total, torch.Tensor)}
        numbers = (
            torch.stack([total.to(next(iter(on_device.values())).device) for total in on_device.values()]).tolist() if on_device else []
        )
        sums = {name: total for name, total in self._sums.items() if not isinstance(total, torch.Tensor)} | dict(
            zip(on_device, numbers, strict=True)
        )
        return {name: (sums[name], weight) for name, weight in self._weights.items()}


def _zero_like(value: torch.Tensor) -> torch.Tensor:
    # In 64 bits a mean over many batches loses nothing; MPS has none.
    return torch.zeros((), dtype=torch.float32 if value.device.type == "mps" else torch.float64, device=value.device)


def mean_over_ranks(runtime: Runtime, means: EpochMeans) -> EpochFigures:
    """Each name's mean over all ranks; a rank whose share was empty adds nothing. All ranks call it together."""
    sums: dict[str, float] = {}
    weights: dict[str, int] = {}
    for figures in runtime.gather(means.read()):
        for name, (total, weight) in figures.items():
            sums[name] = sums.get(name, 0.0) + total
            weights[name] = weights.get(name, 0) + weight
    return {name: sums[name] / weights[name] if weights[name] else float("nan") for name in sums}


class _Step(torch.nn.Module):
    """The training step as a forward pass: DDP prepares its gradient exchange in `forward` and in nothing else."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: Any, batch_index: int) -> torch.Tensor:
        return _loss_of(self.module.training_step(batch, batch_index), self.module)


def _loss_of(output: Any, module: Module) -> torch.Tensor:
    loss = output.get("loss") if isinstance(output, dict) else output
    if not isinstance(loss, torch.Tensor):
        raise InvalidSpec(
            f"{type(module).__name__}.training_step returned no loss.",
            found=type(output).__name__,
            fix="Return the loss as a tensor, or a dictionary with the key 'loss'.",
        )
    return loss


class FitLoop:
    """One `fit`: the module is on its device, the loaders are this rank's shares.

    Args:
        module: what is trained, in place.
        train_loader: this rank's share.
        val_loader: this rank's share without repeats, or None.
        runtime: device, precision and ranks.
        max_epochs: how often the training data are gone through.
        accumulate_grad_batches: batches per optimizer step.
        on_epoch: called on every rank after each epoch with its number from 1 and its figures.
    """

    def __init__(
        self,
        module: Module,
        train_loader: Any,
        val_loader: Any | None,
        *,
        runtime: Runtime,
        max_epochs: int,
        accumulate_grad_batches: int,
        on_epoch: Callable[[int, EpochFigures], None],
    ) -> None:
        self._module = module
        self._logs = step_logs(module)
        self._logs.clear()  # what the module logged before this fit is no step of it
        self._train_loader = train_loader
        self._val_loader = val_loader
        self._runtime = runtime
        self._precision = runtime.precision
        self._strategy = runtime.strategy
        self._max_epochs = max_epochs
        self._accumulate = accumulate_grad_batches
        self._on_epoch = on_epoch
        self._moves = runtime.device.type != "cpu"
        self._batch_index = 0

    def run(self) -> None:
        """Train all epochs."""
        step = self._strategy.wrap(_Step(self._module))
        optimizer = _optimizer_of(self._module)
        with _modes_restored(self._module):
            for epoch in range(self._max_epochs):
                figures = self._train_epoch(epoch, step, optimizer)
                if self._val_loader is not None:
                    figures |= self._validate(self._val_loader)
                self._on_epoch(epoch + 1, figures)

    def _train_epoch(self, epoch: int, step: torch.nn.Module, optimizer: torch.optim.Optimizer) -> EpochFigures:
        means = EpochMeans()
        set_epoch(self._train_loader, epoch)
        self._module.train()
        self._batch_index = 0
        steps = windows(self._train_loader, self._accumulate)
        if epoch == 0 and (first := next(steps, None)) is not None:
            self._apply_window(first, step, optimizer, means)
            rank_channel.mark("first_step")
        for window in steps:
            self._apply_window(window, step, optimizer, means)
        if self._batch_index == 0:
            raise InvalidSpec(
                "The training loader gave no batch.", fix="Check its data set, and drop_last with a batch larger than a rank's share."
            )
        if epoch == self._max_epochs - 1:
            rank_channel.mark("last_step")
        return mean_over_ranks(self._runtime, means)

    def _apply_window(self, window: list[Any], step: torch.nn.Module, optimizer: torch.optim.Optimizer, means: EpochMeans) -> None:
        """One optimizer step with the mean gradient of the window's batches, also where the last window is short."""
        optimizer.zero_grad(set_to_none=True)
        if len(window) > 1:
            # Ranks exchange gradients once a window: in the backward pass of its last batch, which carries the whole sum.
            with self._strategy.hold_gradients(step):
                for batch in window[:-1]:
                    self._backward(batch, step, len(window), means)
        self._backward(window[-1], step, len(window), means)
        self._precision.step(optimizer)

    def _backward(self, batch: Any, step: torch.nn.Module, window_length: int, means: EpochMeans) -> None:
        if self._moves:
            batch = self._runtime.move(batch)
        with self._precision.forward_context():
            loss = step(batch, self._batch_index)
        self._precision.backward(loss / window_length if window_length > 1 else loss)
        size = batch_size_of(batch)
        if LOSS not in self._logs:
            means.add(LOSS, loss.detach(), size)
        self._take_logs(means, size)
        self._batch_index += 1

    def _validate(self, loader: Any) -> EpochFigures:
        # On the module itself, not its DDP form: shares may differ in length, and a rank may have none.
        means = EpochMeans()
        self._strategy.align_buffers(self._module)
        with torch.no_grad(), _modes_restored(self._module):
            self._module.eval()
            for batch_index, batch in enumerate(loader):
                moved = self._runtime.move(batch) if self._moves else batch
                with self._precision.forward_context():
                    self._module.validation_step(moved, batch_index)
                self._take_logs(means, batch_size_of(moved))
        return mean_over_ranks(self._runtime, means)

    def _take_logs(self, means: EpochMeans, batch_size: int) -> None:
        for name, (value, weight) in self._logs.items():
            means.add(name, value, batch_size if weight is None else weight)
        self._logs.clear()


def _optimizer_of(module: Module) -> torch.optim.Optimizer:
    optimizer = module.configure_optimizers()
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidSpec(
            f"{type(module).__name__}.configure_optimizers returned no optimizer.",
            found=type(optimizer).__name__,
            fix="Return one torch.optim optimizer.",
        )
    return optimizer


@contextmanager
def _modes_restored(module: torch.nn.Module) -> Iterator[None]:
    """Leave every submodule in train or eval mode as it was, so that what follows does not hang on where fit ran."""
    modes = {part: part.training for part in module.modules()}
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode
