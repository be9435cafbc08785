"""A Trainer in a plain cell and a `%%gpulayer` cell after it, through the embedded control plane."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

pytestmark = pytest.mark.usefixtures("current_shell")

SETUP = """import torch
from torch.utils.data import DataLoader, TensorDataset
from gpulayer.pytorch import Module, Trainer
class Net(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
    def training_step(self, batch, batch_index):
        print("a step")
        x, y = batch
        return (self.layer(x) - y).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
x = torch.randn(8, 3)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
model = Net()"""


def test_job_of_another_shape_after_a_launched_fit(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    def run(cell: str) -> str:
        assert shell.run_cell(cell, store_history=True).success
        return capsys.readouterr().out

    run(SETUP)
    launched = run("print('kernel only')\nTrainer(target='local', devices=2).fit(model, loader)")
    assert "[rank 1] a step" in launched
    assert "[rank 0] kernel only" not in launched
    shown = run("%%gpulayer\nprint(model.layer.weight.tolist())")
    assert f"[rank 0] {shell.user_ns['model'].layer.weight.tolist()}\n" in shown
    assert "a step" not in shown
