"""A small regression with its data, and the same training written by hand without GPUlayer."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from gpulayer.pytorch import Module


class Line(Module):
    """Two layers with dropout off; logs what the tests compare."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        self.seen: list[int] = []

    def training_step(self, batch: Any, batch_index: int) -> torch.Tensor:
        inputs, targets = batch[:2]
        loss = torch.nn.functional.mse_loss(self.layers(inputs), targets)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_index: int) -> None:
        inputs, targets, indices = batch
        self.seen += indices.tolist()
        self.log("val_error", (self.layers(inputs) - targets).abs().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def make_module() -> Line:
    torch.manual_seed(1)
    return Line()


def make_data(count: int) -> Dataset[Any]:
    """Inputs, targets, and each sample's own index."""
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(count, 3, generator=generator)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True).sin(), torch.arange(count))


def train_by_hand(module: Line, loader: DataLoader[Any], *, epochs: int, accumulate: int = 1) -> None:
    """The reference: plain PyTorch, the mean over each window's batches."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for _ in range(epochs):
        batches = list(loader)
        for start in range(0, len(batches), accumulate):
            window = batches[start : start + accumulate]
            optimizer.zero_grad()
            for inputs, targets, _indices in window:
                (torch.nn.functional.mse_loss(module.layers(inputs), targets) / len(window)).backward()
            optimizer.step()
