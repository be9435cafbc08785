"""After fits in a real shell: the exported program binds the same weights, and trains only where nothing else would do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import IPython
import pytest
import torch
from gpulayer_jupyter.export.bundle_maker import Export
from gpulayer_jupyter.export.provider import export_magic_cell, recorder_of
from IPython.core.interactiveshell import InteractiveShell
from support.notebook import new_shell, run_program, text_of, unpack

from gpulayer.pytorch import Trainer

SETUP = [
    "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\nfrom gpulayer.pytorch import Module, Trainer",
    "torch.manual_seed(0)",
    """class Net(Module):
    def __init__(self, size=1):
        super().__init__()
        self.layer = torch.nn.Linear(3, size)
    def training_step(self, batch, batch_index):
        x, y = batch
        loss = (self.layer(x) - y).square().mean()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)""",
    "x = torch.randn(8, 3)\nloader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)",
    "model = Net()\ntrainer = Trainer(max_epochs=2)\nlosses = []",
]
FIT = "trainer.fit(model, loader)"
FUNCTION = "def train(net, epochs=1):\n    t = Trainer(max_epochs=epochs)\n    t.fit(net, loader)\n    return net"


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    shell = new_shell()
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    recorder_of(shell)
    for cell in SETUP:
        _run(shell, cell)
    yield shell
    recorder_of(shell).stop()


def _run(shell: InteractiveShell, cell: str, *, fails: bool = False) -> None:
    assert shell.run_cell(cell, store_history=True).success is not fails


def _export(shell: InteractiveShell, body: str) -> Export:
    """What `%%gpulayer` with this body would send now."""
    export: list[Export] = []
    shell.register_magic_function(lambda line, cell: export.append(export_magic_cell(shell, cell)), "cell", "gpulayer")
    _run(shell, f"%%gpulayer\n{body}")
    return export[0]


def _run_program(export: Export, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the program binds, run as `__main__` where it is cheap: in this process, outside any kernel."""
    main = ModuleType("__main__")
    main.__file__ = str(unpack(export.bundle, folder) / export.script)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "__main__", main)
        patched.setattr(IPython, "get_ipython", lambda: None)
        exec(compile(Path(main.__file__).read_text(), main.__file__, "exec"), vars(main))
    return vars(main)


def _plain(value: Any) -> Any:
    if isinstance(value, torch.nn.Module):
        return {name: tensor.tolist() for name, tensor in value.state_dict().items()} | {"training": value.training}
    if isinstance(value, Trainer):
        return value.callback_metrics, value.history
    return [_plain(item) for item in value] if isinstance(value, list) else value


# (cells after the set-up, names that the job reads)
NOT_TRAINED_AGAIN: dict[str, tuple[list[str], list[str]]] = {
    "a statement of its own": ([FIT], ["model"]),
    "with its figures": ([FIT], ["model", "trainer"]),
    "asked for another shape": (["trainer.devices = 1\ntrainer.num_nodes = 1", FIT], ["model"]),
    "what it returns": ([f"result = {FIT}"], ["result", "model"]),
    "several": ([FIT, FIT, "trainer.fit(model=model, train_loader=loader)"], ["model", "trainer"]),
    "two on a line": (["other = Net()", f"{FIT}; trainer.fit(other, loader)"], ["model", "other"]),
    "the one between": ([FIT, "before = model.layer.weight.sum().item()", FIT], ["before", "model"]),
    "changed afterwards": ([FIT, "with torch.no_grad():\n    model.layer.weight.mul_(2)\nmodel.eval()"], ["model"]),
    "changed in the same cell": ([f"{FIT}\nmodel.eval()\nmodel.layer.weight.data.mul_(2)"], ["model"]),
    "loaded afterwards": (
        ["start = {k: v.clone() for k, v in model.state_dict().items()}", FIT, "model.load_state_dict(start)"],
        ["model"],
    ),
    "rebound afterwards": ([FIT, "torch.manual_seed(1)\nmodel = Net()"], ["model", "loader"]),
    "of another size afterwards": ([FIT, "torch.manual_seed(1)\nmodel = Net(2)"], ["model"]),
    "both the old and the rebound": (
        ["cfg = [1]\nmodel = Net(cfg[0])", FIT, "old = [model]", "model = Net(cfg[0])", FIT],
        ["old", "model"],
    ),
    "bound to its own name": ([f"net = model\nmodel = {FIT}"], ["net", "model"]),
    "under a second name": (["net = model", FIT], ["net", "model"]),
    "in a list": (["models = [Net(), Net()]", "trainer.fit(models[1], loader)"], ["models"]),
    "in a list by a name": (["models = [Net(), Net()]\ni = 0", "trainer.fit(models[i], loader)\ni = 1"], ["models"]),
    "in an object": (["class Box: pass\nbox = Box()\nbox.model = model", "trainer.fit(box.model, loader)"], ["model"]),
    "trainer made for it": ([f"Trainer(max_epochs=len(losses) + 1).{FIT.partition('.')[2]}"], ["model"]),
    "timed": ([f"%%time\n\n{FIT}\nmodel.layer.weight.data.mul_(2)", f"%time {FIT}"], ["model"]),
    "captured": ([f"%%capture out\nlosses.append(1)\n{FIT}\nlosses.append(2)"], ["model", "losses"]),
    "in a loop": ([f"for _ in range(3):\n    {FIT}"], ["model", "trainer"]),
    "in a loop that counts": ([f"for i in range(2):\n    {FIT}"], ["model"]),
    "in a function": ([FUNCTION, "train(model)"], ["model"]),
    "in a function, twice": ([FUNCTION, "train(model)\ntrain(model)"], ["model"]),
    "bound by a function": ([FUNCTION, "model = train(Net())"], ["model"]),
    "bound twice by a function": ([FUNCTION, "model = train(Net())", "net = train(model)"], ["model", "net"]),
    "held by nobody else": ([FUNCTION, "models = [train(Net())]"], ["models"]),
    "read by the function": (
        [FUNCTION, "def go():\n    net = train(Net())\n    return net.layer.weight.sum().item()\ntotal = go()"],
        ["total"],
    ),
    "renamed in its cell": ([FUNCTION, "tmp = train(Net())\nbest = tmp\ntmp = Net()"], ["best"]),
    "changed after the fit inside": ([FUNCTION, "def go():\n    train(model)\n    model.layer.weight.data.mul_(2)\ngo()"], ["model"]),
    "interrupted loop": ([f"for i in range(3):\n    if i == 2: raise KeyboardInterrupt\n    {FIT}"], ["model"]),
    "only the loader": ([f"for _ in range(3):\n    {FIT}"], ["loader"]),
}


@pytest.mark.parametrize("case", NOT_TRAINED_AGAIN, ids=str)
def test_weights_travel_in_place_of_the_training(
    case: str, shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells, names = NOT_TRAINED_AGAIN[case]
    for cell in cells:
        _run(shell, cell, fails="KeyboardInterrupt" in cell)
    export = _export(shell, "\n".join(names))
    capsys.readouterr()
    bound = _run_program(export, tmp_path, monkeypatch)
    assert "epoch" not in capsys.readouterr().out
    for name in set(names) - {"loader"}:
        assert _plain(bound[name]) == _plain(shell.user_ns[name]), text_of(export)


# Where the statement does more than fitting, and several fits ran in it, it trains again; what it left wins all the same.
TRAINED_AGAIN = {
    "in a loop that keeps figures": ([f"for _ in range(2):\n    {FIT}\n    losses.append(len(trainer.history))"], ["losses", "model"]),
    "bound in a loop": (["for _ in range(2):\n    model = Net()\n    Trainer(devices=1).fit(model, loader)"], ["model"]),
}


@pytest.mark.parametrize("case", TRAINED_AGAIN, ids=str)
def test_what_else_a_statement_binds_is_bound(
    case: str, shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells, names = TRAINED_AGAIN[case]
    for cell in cells:
        _run(shell, cell)
    export = _export(shell, "\n".join(names))
    capsys.readouterr()
    for variable, value in {"JOB_ID": "j-1", "NODES": "3", "DEVICES": "5", "OUTPUT_DIR": str(tmp_path / "out")}.items():
        monkeypatch.setenv(f"GPULAYER_{variable}", value)  # a job of another shape than the statement asks for
    bound = _run_program(export, tmp_path, monkeypatch)
    assert capsys.readouterr().out.count("epoch") >= 2
    assert not (tmp_path / "out").exists()
    for name in names:
        assert _plain(bound[name]) == _plain(shell.user_ns[name]), text_of(export)


def test_program_of_its_own_process_holds_the_weights(shell: InteractiveShell, tmp_path: Path) -> None:
    _run(shell, FIT)
    done = run_program(_export(shell, "print(model.layer.weight.tolist(), trainer.history)"), tmp_path)
    assert done.stdout == f"{shell.user_ns['model'].layer.weight.tolist()} {shell.user_ns['trainer'].history}\n", done.stderr


def test_only_what_the_job_needs_of_a_fit_travels(shell: InteractiveShell) -> None:
    for cell in (FIT, "model.eval()", FIT, "model.eval()", FIT):
        _run(shell, cell)
    export = _export(shell, "model")
    assert len([name for name in export.bundle.files if name.startswith("weights/")]) == 1
    assert text_of(export).count("model.eval()") == 2
    for absent in ("fit(", "trainer", "losses"):
        assert absent not in text_of(export)
    _run(shell, "model = Net()")
    assert not [name for name in _export(shell, "print(torch.__version__)").bundle.files if name.startswith("weights/")]


def test_weights_in_a_loop_do_not_pile_up(shell: InteractiveShell) -> None:
    _run(shell, f"for _ in range(4):\n    {FIT}")
    run = recorder_of(shell).history.runs[-1]
    assert run.fits is not None
    [statement] = run.fits.statements.values()
    folder = statement.models[0].weights.file.parent
    assert len(list(folder.glob("*.safetensors"))) == 1


def test_state_that_is_no_tensor_leaves_the_statement_in(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    _run(shell, "Net.get_extra_state = lambda self: {'a': 1}\nNet.set_extra_state = lambda self, state: None")
    _run(shell, FIT)
    assert "later jobs will train this model again" in capsys.readouterr().err
    main = text_of(_export(shell, "model"))
    assert f"__gpulayer_replays__ = ()  # the kernel fitted a model in this statement\n{FIT}\n__gpulayer_replays__ = None\n" in main


def test_fits_between_the_cells_are_nobodys(shell: InteractiveShell) -> None:
    namespace = shell.user_ns
    namespace["trainer"].fit(namespace["model"], namespace["loader"])
    assert "load_state_dict" not in text_of(_export(shell, "model"))


def test_replayed_fit_in_a_process_that_imports_the_program_again(shell: InteractiveShell, tmp_path: Path) -> None:
    _run(shell, f"{FUNCTION}\nnet = train(Net())")
    body = (
        "import multiprocessing\ndef weight(_):\n    return net.layer.weight.tolist()\n"
        "with multiprocessing.get_context('spawn').Pool(1) as pool:\n    print(pool.map(weight, [0]))"
    )
    done = run_program(_export(shell, body), tmp_path)
    assert done.stdout == f"[{shell.user_ns['net'].layer.weight.tolist()}]\n", done.stderr
