import sys
from types import SimpleNamespace

import pytest

from gpulayer.bundle.archive import Bundle
from gpulayer.bundle.source_provider import Source
from gpulayer.errors import InvalidSpec, Unsupported
from gpulayer.pytorch import is_launcher_process, launch
from gpulayer.pytorch.launch import job_from_source, submit_source
from gpulayer.settings import GRACE_SECONDS
from gpulayer.spec import CommandJob, DistributedJob

SOURCE = Source(bundle=Bundle({"train.py": b""}), script="train.py", args=("--lr", "1"), title="my train (2)")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(execution_count=3, user_ns={})))


def test_inside_a_job_it_returns_at_once(monkeypatch: pytest.MonkeyPatch, kernel: None) -> None:
    assert is_launcher_process()
    monkeypatch.setenv("GPULAYER_JOB_ID", "j-1")
    launch(nodes=2, devices=4)
    assert not is_launcher_process()


def test_under_torchrun_nothing_is_left_to_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    launch(devices=2)


def test_a_notebook_is_refused_in_two_lines(kernel: None) -> None:
    with pytest.raises(Unsupported) as refused:
        launch(nodes=2, devices=4)
    lines = refused.value.two_lines().splitlines()
    assert len(lines) == 2
    assert "%%gpulayer --nodes 2 --devices 4" in lines[1]


def test_one_rank_is_a_command_that_enters_as_ranks_do() -> None:
    job = job_from_source(SOURCE, nodes=1, devices=1, accelerator="auto")
    assert isinstance(job, CommandJob)
    assert job.argv == ("python", "-m", "gpulayer.runtime.rank_main", "train.py", "--lr", "1")
    assert (job.name, job.requires) == ("my-train-2", ("torch",))


@pytest.mark.parametrize(("nodes", "devices"), [(1, 2), (2, 1), (2, 4)])
def test_more_are_a_distributed_job(nodes: int, devices: int) -> None:
    job = job_from_source(SOURCE, nodes=nodes, devices=devices, accelerator="cuda", name="mine", retries=1)
    assert isinstance(job, DistributedJob)
    assert (job.nodes, job.devices, job.script, job.args, job.name, job.retries) == (nodes, devices, "train.py", ("--lr", "1"), "mine", 1)
    assert job.requires == ("torch", "torch.cuda")


def test_the_grace_is_the_jobs_own() -> None:
    assert job_from_source(SOURCE, nodes=1, devices=1, accelerator="auto", grace_seconds=60.0).grace_seconds == 60.0
    assert job_from_source(SOURCE, nodes=1, devices=1, accelerator="auto").grace_seconds == GRACE_SECONDS


@pytest.mark.parametrize(("started", "said"), [([], ""), (["w1", "w2"], "gpulayer: started 2 local workers × 1 CPU device\n")])
def test_what_was_started_for_a_job_is_said(started: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec = job_from_source(SOURCE, nodes=2, devices=1, accelerator="auto")
    job = SimpleNamespace(status=SimpleNamespace(spec=spec))
    client = SimpleNamespace(start_workers_for=lambda spec: started, submit=lambda spec, source, lease_seconds=None: job)
    assert submit_source(client, spec, SOURCE) is job
    assert capsys.readouterr().err == said


def test_each_accelerator_names_its_capability() -> None:
    required = {kind: job_from_source(SOURCE, nodes=1, devices=1, accelerator=kind).requires for kind in ("cpu", "rocm", "mps")}
    assert required == {"cpu": ("torch",), "rocm": ("torch", "torch.rocm"), "mps": ("torch", "torch.mps")}


@pytest.mark.parametrize("shape", [{"nodes": 0, "devices": 1}, {"nodes": 1, "devices": 0.5}])
def test_impossible_shapes_are_refused(shape: dict[str, int]) -> None:
    with pytest.raises(InvalidSpec):
        job_from_source(SOURCE, accelerator="auto", **shape)


def test_mps_is_one_process() -> None:
    with pytest.raises(InvalidSpec, match="MPS"):
        job_from_source(SOURCE, nodes=1, devices=2, accelerator="mps")
