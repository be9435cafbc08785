"""Where a fit runs, and what is refused; that a launched fit comes back is tested end to end."""

import inspect
import itertools
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from support.small_module import make_data, make_module
from torch.utils.data import DataLoader

from gpulayer.bundle.executing import REPLAYS
from gpulayer.errors import InvalidSpec, Unsupported
from gpulayer.pytorch import Trainer, trainer
from gpulayer.pytorch.weights import load_fit, model_name, save_fit, save_weights, weights_path

# Frozen: a further argument needs an ADR that names what a callback cannot do (ADR-0014), and there are never more than 20.
ARGUMENTS = {
    "max_epochs": 1,
    "accelerator": "auto",
    "devices": None,
    "num_nodes": None,
    "precision": "32-true",
    "accumulate_grad_batches": 1,
    "target": None,
    "enable_progress": True,
}


@pytest.fixture
def loader() -> DataLoader[Any]:
    return DataLoader(make_data(8), batch_size=4)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job of one rank; returns its output folder."""
    variables = {"JOB_ID": "j-1", "NODES": "1", "DEVICES": "1", "ACCELERATOR": "cpu"}
    variables |= {"OUTPUT_DIR": str(tmp_path), "INPUTS_DIR": str(tmp_path / "inputs")}
    for name, value in variables.items():
        monkeypatch.setenv(f"GPULAYER_{name}", value)
    monkeypatch.setattr(trainer, "_fits", itertools.count())
    return tmp_path


def test_arguments_are_frozen() -> None:
    parameters = list(inspect.signature(Trainer).parameters.values())
    assert {parameter.name: parameter.default for parameter in parameters} == ARGUMENTS
    assert len(parameters) <= 20
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"max_epochs": 0}, "max_epochs=0"),
        ({"devices": 0.5}, "devices=0.5"),
        ({"num_nodes": True}, "num_nodes=True"),
        ({"accumulate_grad_batches": -1}, "accumulate_grad_batches=-1"),
        ({"accelerator": "gpu"}, "accelerator='gpu'"),
        ({"precision": "16-mixed", "accelerator": "cpu"}, "16-mixed needs cuda"),
        ({"precision": "16-mixed", "accelerator": "mps"}, "16-mixed needs cuda"),
        ({"precision": "bf16-mixed", "accelerator": "mps"}, "bf16-mixed needs cpu or cuda"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        Trainer(**arguments)
    assert named in str(refused.value)


def test_fit_takes_modules_only(loader: DataLoader[Any]) -> None:
    with pytest.raises(InvalidSpec, match="Module"):
        Trainer().fit(torch.nn.Linear(1, 1), loader)  # type: ignore[arg-type]


def test_a_line_an_epoch(loader: DataLoader[Any], capsys: pytest.CaptureFixture[str]) -> None:
    trainer = Trainer(max_epochs=2)
    trainer.fit(make_module(), loader, loader)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "epoch 2/2 " + " ".join(f"{name} {value:.3g}" for name, value in trainer.callback_metrics.items())
    Trainer(enable_progress=False).fit(make_module(), loader)
    assert capsys.readouterr().out == ""


def test_a_second_fit_starts_its_history_anew(loader: DataLoader[Any]) -> None:
    trainer = Trainer()
    for _ in range(2):
        trainer.fit(make_module(), loader)
    assert len(trainer.history) == 1


# ---- inside a job


def test_in_a_job_weights_and_figures_are_left(job: Path, loader: DataLoader[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, other = make_module(), make_module()
    monkeypatch.setattr(sys.modules["__main__"], "net", model, raising=False)
    trainer = Trainer(target="cluster", max_epochs=2)  # the target means nothing here: this is where it led
    trainer.fit(model, loader)
    trainer.fit(model, loader)
    assert model_name(weights_path(job, 1)) == "net"
    figures = load_fit(job, other, 1)
    assert figures == {"callback_metrics": trainer.callback_metrics, "history": trainer.history}
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"devices": 2}, "devices=2.*the job has 1"),
        ({"num_nodes": 3}, "num_nodes=3.*the job has 1"),
        ({"accelerator": "cuda"}, "accelerator='cuda'.*granted cpu"),
    ],
)
def test_a_clash_with_the_job_names_both(job: Path, loader: DataLoader[Any], arguments: dict[str, Any], found: str) -> None:
    with pytest.raises(InvalidSpec, match=found):
        Trainer(**arguments).fit(make_module(), loader)


def test_the_jobs_own_shape_may_be_repeated(job: Path, loader: DataLoader[Any]) -> None:
    Trainer(devices=1, num_nodes=1, accelerator="cpu").fit(make_module(), loader)


def test_devices_without_a_rank_are_refused(job: Path, loader: DataLoader[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULAYER_DEVICES", "2")
    with pytest.raises(InvalidSpec, match="more devices than it has ranks"):
        Trainer().fit(make_module(), loader)


def test_a_job_for_one_fit_ends_at_the_next(job: Path, loader: DataLoader[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_GPULAYER_FIT", "1")
    for _ in range(2):
        Trainer().fit(make_module(), loader)
    with pytest.raises(SystemExit) as left:
        Trainer(devices=7).fit(make_module(), loader)
    assert left.value.code == 0
    assert json.loads((job / "weights" / "fit1.json").read_text())["history"]
    assert not weights_path(job, 2).exists()


def test_launched_fits_before_the_jobs_own_are_not_trained_again(
    job: Path, loader: DataLoader[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_GPULAYER_FIT", "1")
    earlier = make_module()
    torch.nn.init.zeros_(earlier.layers[0].weight)
    save_fit(job / "inputs" / "gpulayer-fits", 0, earlier, {"callback_metrics": {"loss": 0.25}, "history": []})
    model, trainer = make_module(), Trainer(devices=4)  # the other shape belongs to a job that is over
    trainer.fit(model, loader)
    assert torch.equal(model.layers[0].weight, earlier.layers[0].weight)
    assert trainer.callback_metrics == {"loss": 0.25}
    assert not weights_path(job, 0).exists()
    Trainer().fit(model, loader)
    assert weights_path(job, 1).exists()


# ---- replayed in a job


@pytest.fixture
def replays(job: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An exported program's `__main__`, in a job of another shape."""
    monkeypatch.setenv("GPULAYER_DEVICES", "3")
    main = ModuleType("__main__")
    main.__file__ = str(job / "main.py")
    monkeypatch.setitem(sys.modules, "__main__", main)
    return main


def test_replayed_fit_takes_what_the_first_one_left(job: Path, replays: ModuleType, loader: DataLoader[Any]) -> None:
    earlier, model = make_module(), make_module()
    torch.nn.init.zeros_(earlier.layers[0].weight)
    save_weights(earlier, job / "a.safetensors")
    (job / "b.json").write_text('{"callback_metrics": {"loss": 0.5}, "history": [{"epoch": 1}]}')
    vars(replays)[REPLAYS] = ("a.safetensors", "b.json")
    replayed = Trainer(devices=2, accelerator="cuda")
    replayed.fit(model, loader)
    assert torch.equal(model.layers[0].weight, earlier.layers[0].weight)
    assert (replayed.callback_metrics, replayed.history) == ({"loss": 0.5}, [{"epoch": 1}])


def test_replayed_fit_without_weights_trains_in_the_jobs_shape_and_is_not_counted(
    job: Path, replays: ModuleType, loader: DataLoader[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    vars(replays)[REPLAYS] = ()
    replayed = Trainer(devices=2, accelerator="cuda")
    replayed.fit(make_module(), loader)
    assert replayed.history
    assert not (job / "weights").exists()
    vars(replays)[REPLAYS] = None
    with pytest.raises(InvalidSpec, match="another shape"):
        Trainer(devices=2).fit(make_module(), loader)
    monkeypatch.setenv("GPULAYER_DEVICES", "1")
    Trainer().fit(make_module(), loader)
    assert weights_path(job, 1).exists()


# ---- outside


def test_a_statement_of_a_cell_launches_one_fit(monkeypatch: pytest.MonkeyPatch, loader: DataLoader[Any]) -> None:
    namespace = {"Trainer": Trainer, "model": make_module(), "loader": loader}
    shell = SimpleNamespace(execution_count=3, user_ns=namespace)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(trainer, "_launching_statements", {(3, ((2, 4),))})
    with pytest.raises(Unsupported, match=r"launches one fit.*line 2"):
        exec("for _ in range(2):\n    Trainer(devices=2).fit(model, loader)\n", namespace)


def test_more_than_one_device_is_launched_and_needs_a_script(loader: DataLoader[Any]) -> None:
    code = (
        "from support.small_module import make_module\nfrom gpulayer.pytorch import Trainer\n"
        "try:\n    Trainer(devices=2).fit(make_module(), [])\nexcept Exception as error:\n    print(type(error).__name__)\n"
    )
    folder = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": folder}, capture_output=True, text=True)
    assert done.stdout == "NotExportable\n", done.stderr
