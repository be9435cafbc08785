"""The end of an attempt: its outputs, its outcome, and orders that come between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.worker import WorkerPlace, worker_place

from gpulayer import CommandJob, JobState
from gpulayer.worker import task_runner

WAIT_SECONDS = 30.0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerPlace]:
    with worker_place(tmp_path, monkeypatch) as opened:
        yield opened


@pytest.mark.parametrize("force", [False, True])
def test_a_job_that_stores_its_outputs_can_be_stopped(place: WorkerPlace, monkeypatch: pytest.MonkeyPatch, force: bool) -> None:
    agent = place.start_agent()
    hangs, go_on = threading.Event(), threading.Event()

    def put(path, sha256) -> None:
        hangs.set()
        assert go_on.wait(WAIT_SECONDS)

    monkeypatch.setattr(agent.transport, "put_artifact", put)
    job = place.client.submit(CommandJob(["sh", "-c", "echo x > ../output/file"]))
    assert hangs.wait(WAIT_SECONDS)
    job.cancel(force=force)
    assert job.wait(WAIT_SECONDS).state is JobState.CANCELLED
    # Its device is free while the upload still hangs.
    assert place.client.submit(CommandJob(["true"])).wait(WAIT_SECONDS).state is JobState.SUCCEEDED
    go_on.set()
    assert agent.error is None


def test_odd_outputs_cost_nothing_but_themselves_and_are_named_in_the_log(place: WorkerPlace, tmp_path: Path) -> None:
    place.start_agent()
    script = "cd ../output; echo good > good; ln -s loop loop; mkfifo fifo; ln -s /etc out; : > \"$(printf 'bad\\377')\"; exit 3"
    job = place.client.submit(CommandJob(["sh", "-c", script])).wait(WAIT_SECONDS)
    assert job.state is JobState.FAILED
    assert job.status.failure.exit_code == 3
    assert [path.name for path in job.download(tmp_path / "out")] == ["good"]
    said = [line for line in job.logs() if "Left out of the outputs" in line.text]
    assert {(line.rank, line.stream) for line in said} == {(None, "stderr")}
    assert len(said) == 4


def test_a_fault_of_the_worker_keeps_what_is_known_of_the_ranks(place: WorkerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*args) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(task_runner, "find_outputs", break_down)
    agent = place.start_agent()
    job = place.client.submit(CommandJob(["true"])).wait(WAIT_SECONDS)
    assert job.state is JobState.FAILED
    assert "RuntimeError: broken" in job.status.failure.message
    (finish,) = agent.transport.seen("finish_task")
    assert [rank.exit_code for rank in finish.ranks] == [0]
