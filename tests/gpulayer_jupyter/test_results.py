"""Following a job to its end: interrupts, failures, weights. The job is a stand-in whose end the test decides."""

from __future__ import annotations

import ast
import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gpulayer_jupyter.export.pieces import Piece
from gpulayer_jupyter.export.script import LinePiece, Program
from gpulayer_jupyter.kept_weights import load_weights
from gpulayer_jupyter.results import follow_to_end, remember_program, watch_to_end
from msgspec import structs
from safetensors.torch import save_file

from gpulayer.client.failures import job_failed
from gpulayer.errors import Conflict, JobFailed, ServerUnreachable
from gpulayer.protocol import Digest, Display, Failure, JobId, JobStatus, LogPage, OutputFile, RankError
from gpulayer.spec import CommandJob
from gpulayer.states import JobState


class StandIn:
    """As much of a job as following needs; ends when told to."""

    id = JobId("j1")
    client = SimpleNamespace(place="here", is_embedded=False)

    def __init__(self) -> None:
        self.status = self.made(JobState.RUNNING)
        self.orders: list[bool] = []
        self.error: Exception | None = None
        self.waited = False
        self.on_cancel: Callable[[bool], None] = lambda force: None
        self._ended = threading.Event()

    @staticmethod
    def made(state: JobState, failure: Failure | None = None) -> JobStatus:
        return JobStatus(
            job_id=JobId("j1"),
            name="n",
            owner="me",
            spec=CommandJob(("python",)),
            state=state,
            revision=1,
            attempt=1,
            accelerator="cpu",
            created_at=0.0,
            failure=failure,
        )

    def end(self, state: JobState, failure: Failure | None = None) -> None:
        self.status = self.made(state, failure)
        self._ended.set()

    def follow_pages(self, rank: int | None, stop: threading.Event) -> Iterator[LogPage]:
        return iter(())

    def follow_displays(self, stop: threading.Event) -> Iterator[Display]:
        return iter(())

    def follow_status(self, stop: threading.Event) -> Iterator[JobStatus]:
        yield self.made(JobState.RUNNING)
        self._ended.wait()
        if self.error is not None:
            raise self.error
        yield self.status

    def cancel(self, force: bool = False) -> None:
        self.orders.append(force)
        self.on_cancel(force)

    def wait(self) -> None:
        assert self._ended.wait(10)
        self.waited = True

    def result(self) -> JobStatus:
        if self.status.state is not JobState.SUCCEEDED:
            raise job_failed(self.status)
        return self.status


SHELL = SimpleNamespace()


def test_failure_shows_the_guilty_rank_and_its_traceback() -> None:
    job = StandIn()
    error = RankError(
        type="ValueError", message="bad", traceback='Traceback (most recent call last):\n  File "x.py", line 1\nValueError: bad\n'
    )
    job.end(JobState.FAILED, Failure(reason="rank", message="", node=1, worker="w", rank=3, device="cpu:1", exit_code=1, error=error))
    with pytest.raises(JobFailed) as failed:
        follow_to_end(job, SHELL)
    lines = failed.value._render_traceback_()[0].splitlines()  # type: ignore[attr-defined]
    assert lines[0] == "JobFailed: Job j1 'n' failed: rank 3 (node 1, worker w, device cpu:1) exited with code 1."
    assert lines[2:] == [*error.traceback.splitlines(), "", "All its output: %gpulayer logs j1 --rank 3"]


def test_first_interrupt_stops_and_waits_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    job = StandIn()
    job.on_cancel = lambda force: job.end(JobState.CANCELLED)
    _interrupt_at_show(monkeypatch, times=1)
    with pytest.raises(KeyboardInterrupt):
        follow_to_end(job, SHELL)
    assert job.orders == [False]


def test_second_interrupt_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    job = StandIn()

    def cancel(force: bool) -> None:
        if not force:
            raise KeyboardInterrupt  # the person is impatient
        job.end(JobState.CANCELLED)

    job.on_cancel = cancel
    _interrupt_at_show(monkeypatch, times=1)
    with pytest.raises(KeyboardInterrupt):
        follow_to_end(job, SHELL)
    assert job.orders == [False, True]


def test_an_interrupt_ends_the_watching_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    job = StandIn()
    _interrupt_at_show(monkeypatch, times=1)
    with pytest.raises(KeyboardInterrupt):
        watch_to_end(job, SHELL)
    assert job.orders == []
    assert capsys.readouterr().out.splitlines()[-1] == "job j1 still runs: %gpulayer cancel j1"
    job.end(JobState.CANCELLED)  # its threads end


def test_attaching_tells_places_in_cells_where_this_kernel_knows_the_program() -> None:
    piece = Piece(4, 2, "f()\n", ast.parse("f()").body[0], 1)
    program = Program({"main.py": "", "cell.py": ""}, (LinePiece("cell.py", 1, 3, 1, 2),), (4,), (piece,))
    error = RankError(type="ValueError", message="x", traceback='  File "/w/1/source/cell.py", line 3, in g\nValueError: x\n')
    job = StandIn()
    job.end(JobState.FAILED, Failure(reason="rank", message="", rank=0, exit_code=1, error=error))
    job.status = structs.replace(job.status, spec=CommandJob(("python",), cells=(4,)))
    remember_program(job, program)
    with pytest.raises(JobFailed) as failed:
        watch_to_end(job, SHELL)
    assert failed.value.details["traceback"] == "  Cell [4], line 4, in g\nValueError: x"


@pytest.mark.parametrize("interrupts", [1, 2])
def test_an_interrupt_while_the_end_is_drawn_does_not_keep_it_from_being_drawn(interrupts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    job = StandIn()
    job.end(JobState.SUCCEEDED)
    drawn = []
    left = [interrupts]

    def close(self: Any, view: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise KeyboardInterrupt
        drawn.append(view.status.state)

    monkeypatch.setattr("gpulayer_jupyter.output.terminal_display.TerminalDisplay.close", close)
    with pytest.raises(KeyboardInterrupt):
        follow_to_end(job, SHELL)
    assert drawn == [JobState.SUCCEEDED]


def test_an_interrupt_before_the_job_is_followed_kills_it_and_waits_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    job = StandIn()
    job.on_cancel = lambda force: job.end(JobState.CANCELLED)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpulayer_jupyter.results.place_for", interrupted)
    with pytest.raises(KeyboardInterrupt):
        follow_to_end(job, SHELL)
    assert job.orders == [True]
    assert job.waited


def _interrupt_at_show(monkeypatch: pytest.MonkeyPatch, *, times: int) -> None:
    """As if Ctrl-C came while the display was being drawn."""
    from gpulayer_jupyter.output import terminal_display

    left = [times]
    show = terminal_display.TerminalDisplay.show

    def interrupted(self: Any, view: Any, lines: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise KeyboardInterrupt
        show(self, view, lines)

    monkeypatch.setattr(terminal_display.TerminalDisplay, "show", interrupted)


@pytest.mark.parametrize("error", [ServerUnreachable("Nobody answers."), KeyError("a fault of ours")])
def test_what_ends_the_following_is_told_and_not_taken_for_the_jobs_end(error: Exception) -> None:
    job = StandIn()
    job.error = error
    job.end(JobState.RUNNING)
    with pytest.raises(type(error)):
        follow_to_end(job, SHELL)


# ---- weights


class Outputs:
    """A job's outputs as a folder."""

    id = JobId("j1")

    def __init__(self, folder: Path) -> None:
        self._files = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in folder.rglob("*") if path.is_file()}
        self.outputs = {
            path.relative_to(folder).as_posix(): OutputFile(path=path.name, sha256=Digest(digest), size_bytes=1)
            for digest, path in self._files.items()
        }
        self.client = SimpleNamespace(transport=self)

    def get_artifact(self, sha256: str, destination: Path) -> None:
        destination.write_bytes(self._files[sha256].read_bytes())


def _save(folder: Path, fit: int, name: str, tensors: dict[str, torch.Tensor]) -> None:
    path = folder / f"weights/fit{fit}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata={"gpulayer.model": name, "gpulayer.fit": str(fit)})


@pytest.mark.parametrize("prefix", ["", "node0"])
def test_weights_come_into_the_model_of_the_same_name(prefix: str, tmp_path: Path) -> None:
    state = {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}
    _save(tmp_path / prefix, 0, "model", {key: value * 5 for key, value in state.items()})
    _save(tmp_path / prefix, 1, "model", state)
    _save(tmp_path / prefix, 2, "gone", state)
    model = torch.nn.Linear(2, 1)
    loaded = []
    said = load_weights(Outputs(tmp_path), {"model": model}, on_loaded=lambda name, file: loaded.append((name, file.is_file())))  # type: ignore[arg-type]
    assert torch.equal(model.weight, torch.ones(1, 2))
    assert loaded == [("model", True)] * 2
    assert said[1] == "'model' holds the weights of fit 1"
    assert said[2] == "weights of fit 2 (gone): gpulayer.connect().job('j1').weights(2)"


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    _save(tmp_path, 0, "model", {"weight": torch.ones(3, 2)})
    with pytest.raises(Conflict, match="'model'"):
        load_weights(Outputs(tmp_path), {"model": torch.nn.Linear(2, 1)}, on_loaded=lambda name, file: None)  # type: ignore[arg-type]


def test_no_weights_no_torch_needed(tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text("x")
    assert load_weights(Outputs(tmp_path), {}, on_loaded=lambda name, file: None) == []  # type: ignore[arg-type]
