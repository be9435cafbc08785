"""The quickstart as a script: `python train_digits.py` runs it as a job on 2 workers × 2 devices each."""

from __future__ import annotations

import os

import torch
from digits_data import load_digits_split
from torch.utils.data import DataLoader

from gpulayer.pytorch import Module, Runtime, Trainer, launch

launch(nodes=2, devices=2)
# Above this line the script runs here and on every rank; below it, on the ranks only.


class DigitsNet(Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)

    def training_step(self, batch, batch_index):  # noqa: ARG002
        images, labels = batch
        return torch.nn.functional.cross_entropy(self(images), labels)

    def validation_step(self, batch, batch_index):  # noqa: ARG002
        images, labels = batch
        self.log("val_accuracy", (self(images).argmax(1) == labels).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


if __name__ == "__main__":
    torch.manual_seed(0)
    train, held_back = load_digits_split()
    model = DigitsNet().double()
    trainer = Trainer(max_epochs=8)
    trainer.fit(model, DataLoader(train, batch_size=32, shuffle=True), DataLoader(held_back, batch_size=64))

    runtime = Runtime()
    print(f"rank {runtime.rank} of {runtime.world_size} ran as pid {os.getpid()}")
    if runtime.is_rank_zero:
        print(f"accuracy {trainer.callback_metrics['val_accuracy']:.3f} on {len(held_back)} held-back digits")
