"""Agents end to end: the real control plane, the real keeper, real processes."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.worker import CuttableTransport, RunningAgent, WorkerPlace, worker_place

from gpulayer import CommandJob, JobState, settings
from gpulayer.bundle.archive import Bundle
from gpulayer.errors import NotAuthenticated, ProtocolMismatch, ServerUnreachable, TooLarge, TooManyCalls
from gpulayer.protocol import PROTOCOL_VERSION
from gpulayer.worker import agent as agent_module
from gpulayer.worker import log_backlog, task_runner
from gpulayer.worker.config import WorkerConfig
from gpulayer.worker.log_sender import LogSender


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerPlace]:
    with worker_place(tmp_path, monkeypatch) as opened:
        yield opened


def _lines(job) -> list[str]:
    return [line.text.rstrip("\n") for line in job.logs()]


@pytest.fixture
def each_word_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start and output are told by calls of their own, also those of a job that ends at once."""
    monkeypatch.setattr("gpulayer.runtime.task_process.SHORT_SECONDS", 0.0)
    monkeypatch.setattr("gpulayer.worker.task_runner.REST_BYTES", -1)


@pytest.mark.usefixtures("each_word_apart")
def test_a_command_runs_with_its_source_inputs_and_outputs(place: WorkerPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "project"
    (here / "data" / "deep").mkdir(parents=True)
    (here / "train.csv").write_bytes(b"1,2\r\n")
    (here / "data" / "deep" / "x.txt").write_text("deep")
    monkeypatch.chdir(here)
    script = """
import os, pathlib, sys
inputs, output = pathlib.Path(os.environ["GPULAYER_INPUTS_DIR"]), pathlib.Path(os.environ["GPULAYER_OUTPUT_DIR"])
print(open("train.csv", "rb").read(), (inputs / "table").read_bytes() == b"1,2\\r\\n", open("data/deep/x.txt").read())
print(os.getcwd().endswith("/source"), oct(os.stat("..").st_mode & 0o777), sys.argv[1:])
(output / "sub").mkdir()
(output / "sub" / "result.txt").write_text("done")
print("trouble", file=sys.stderr)
"""
    agent = place.start_agent()
    job = place.client.submit(
        CommandJob(["python", "main.py", "a b"], inputs={"table": "train.csv", "folder": "data"}),
        source=Bundle({"main.py": script.encode()}),
    )
    assert job.wait(60).state is JobState.SUCCEEDED, job.status
    assert {line.text.rstrip("\n") for line in job.logs() if line.stream == "stderr"} == {"trouble"}
    assert [line.text.rstrip("\n") for line in job.logs() if line.stream == "stdout"] == [
        "b'1,2\\r\\n' True deep",
        "True 0o700 ['a b']",
    ]
    assert [path.read_text() for path in job.download(tmp_path / "out")] == ["done"]
    assert (tmp_path / "out" / "sub" / "result.txt").exists()
    # acquire, start, logs, finish: nothing else was asked of the control plane for this job.
    assert [name for name, _ in agent.transport.calls if name not in ("register_worker", "acquire_task")] == [
        "start_task",
        "append_logs",
        "finish_task",
    ]
    agent.agent.stop()
    agent.join()
    assert list((place.work_dir / "workspaces").iterdir()) == []


def test_a_short_job_is_told_with_one_call(place: WorkerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulayer.runtime.task_process.SHORT_SECONDS", 600.0)
    agent = place.start_agent()
    job = place.client.submit(CommandJob(["sh", "-c", "echo one; echo two >&2; printf END"])).wait(60)
    assert job.state is JobState.SUCCEEDED
    assert sorted(_lines(job)) == ["END", "one", "two"]
    assert [name for name, _ in agent.transport.calls if name not in ("register_worker", "acquire_task")] == ["finish_task"]
    assert job.status.created_at <= job.status.started_at <= job.status.ended_at


def test_the_word_of_an_end_brings_the_next_assignment(place: WorkerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulayer.runtime.task_process.SHORT_SECONDS", 600.0)
    jobs = [place.client.submit(CommandJob(["sh", "-c", f"echo {number}"])) for number in range(5)]
    agent = place.start_agent(cpu_devices=1)
    for number, job in enumerate(jobs):
        assert job.wait(60).state is JobState.SUCCEEDED
        assert _lines(job) == [str(number)]
    names = [name for name, _ in agent.transport.calls]
    assert names.count("finish_task") == 5
    # One brought the first, one confirmed it and is held since; the others came with the ends.
    assert names.count("acquire_task") == 2


def test_more_output_than_a_finish_carries_goes_ahead_of_it(place: WorkerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulayer.runtime.task_process.SHORT_SECONDS", 600.0)
    agent = place.start_agent()
    job = place.client.submit(CommandJob(["sh", "-c", "seq 100000; exit 3"])).wait(60)
    assert job.exit_code == 3
    assert _lines(job) == [str(number) for number in range(1, 100_001)]
    names = [name for name, _ in agent.transport.calls if name not in ("register_worker", "acquire_task")]
    assert names[0] == "append_logs"
    assert names[-1] == "finish_task"


def test_the_last_output_is_kept_where_the_outcome_is_refused(place: WorkerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulayer.runtime.task_process.SHORT_SECONDS", 600.0)
    agent = place.start_agent()
    refused: list[str] = []

    def refuse(name: str, request) -> None:
        if name == "finish_task" and not refused:
            refused.append(name)
            raise TooLarge("Too much at once.")

    agent.transport.before_call = refuse
    job = place.client.submit(CommandJob(["sh", "-c", "echo the end"])).wait(60)
    assert job.state is JobState.FAILED
    assert "refused that: Too much at once." in job.status.failure.message
    assert _lines(job) == ["the end"]


def test_a_job_that_cannot_start_fails_with_the_reason(place: WorkerPlace) -> None:
    place.start_agent()
    job = place.client.submit(CommandJob(["no-such-program-here"])).wait(60)
    assert job.state is JobState.FAILED
    assert job.status.failure is not None
    assert job.status.failure.reason == "start"
    assert "no-such-program-here" in job.status.failure.message or "No such file" in job.status.failure.message
    assert job.status.failure.worker == "w"


def test_a_hostile_bundle_fails_the_job_and_not_the_worker(place: WorkerPlace, tmp_path: Path) -> None:
    agent = place.start_agent()
    job = place.client.submit(CommandJob(["true"]), source=_Hostile({"a": b""})).wait(60)
    assert job.state is JobState.FAILED
    assert "leads upwards" in job.status.failure.message
    assert place.client.submit(CommandJob(["true"])).wait(60).state is JobState.SUCCEEDED
    assert agent.error is None


class _Hostile(Bundle):
    def write(self, path: Path):
        return Bundle({"../evil": b""}).write(path)


def test_a_running_job_is_cancelled(place: WorkerPlace) -> None:
    place.start_agent()
    job = place.client.submit(CommandJob(["sh", "-c", "echo up; exec sleep 600"], grace_seconds=5))
    assert next(job.follow_logs()).text.rstrip("\n") == "up"
    job.cancel()
    assert job.wait(30).state is JobState.CANCELLED


def test_a_failed_attempt_is_tried_again_and_devices_come_back(place: WorkerPlace) -> None:
    place.start_agent()
    job = place.client.submit(CommandJob(["sh", "-c", "echo try $GPULAYER_ATTEMPT; test $GPULAYER_ATTEMPT = 3"], retries=2)).wait(60)
    assert job.state is JobState.SUCCEEDED
    assert job.status.attempt == 3
    assert _lines(job) == ["try 1", "try 2", "try 3"]


def test_two_jobs_share_a_worker_and_a_queued_one_follows_at_once(place: WorkerPlace) -> None:
    place.start_agent(cpu_devices=2)
    jobs = [place.client.submit(CommandJob(["sh", "-c", f"echo {number}"])) for number in range(6)]
    assert [job.wait(60).state for job in jobs] == [JobState.SUCCEEDED] * 6
    assert [_lines(job) for job in jobs] == [[str(number)] for number in range(6)]


@pytest.mark.parametrize("jobs", [5, pytest.param(170, marks=pytest.mark.soak)])
def test_a_poll_that_is_cut_with_the_assignment_on_its_way_loses_no_job(place: WorkerPlace, jobs: int) -> None:
    agent = place.start_agent()
    lost: list[str] = []

    def lose(name: str, answer) -> bool:
        if name != "acquire_task" or not answer.assignments:
            return False
        lost.append(answer.assignments[0].task_id)
        return lost.count(lost[-1]) <= 2

    agent.transport.lose_answer = lose
    for _ in range(jobs):
        assert place.client.submit(CommandJob(["true"])).wait(60).state is JobState.SUCCEEDED
    assert len(lost) >= 3 * jobs  # each assignment was cut off twice and came a third time


def test_a_job_goes_on_while_the_server_is_away_and_loses_no_line(place: WorkerPlace, tmp_path: Path) -> None:
    agent = place.start_agent()
    mark = tmp_path / "mark"
    script = "i=0; echo up; while [ ! -e {0} ]; do :; done; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; touch {0}.done"
    job = place.client.submit(CommandJob(["sh", "-c", script.format(mark)]))
    assert next(job.follow_logs()).text.rstrip("\n") == "up"
    agent.transport.cut()
    sent = len(agent.transport.seen("append_logs"))
    mark.touch()
    agent.transport.wait_for_call("append_logs", sent + 3)
    assert job.state is JobState.RUNNING
    agent.transport.mend()
    assert job.wait(60).state is JobState.SUCCEEDED
    assert _lines(job) == ["up", *(f"line {number}" for number in range(2000))]


@pytest.mark.usefixtures("each_word_apart")
def test_a_finish_whose_answer_was_lost_is_said_again(place: WorkerPlace) -> None:
    agent = place.start_agent()
    lost: list[str] = []

    def lose(name: str, answer) -> bool:
        if name in ("start_task", "append_logs", "finish_task") and lost.count(name) < 2:
            lost.append(name)
            return True
        return False

    agent.transport.lose_answer = lose
    job = place.client.submit(CommandJob(["sh", "-c", "echo once; sleep 0.2"])).wait(60)
    assert job.state is JobState.SUCCEEDED
    assert _lines(job) == ["once"]
    assert lost.count("append_logs") == 2


def test_a_lost_attempt_is_killed_at_once(place: WorkerPlace, tmp_path: Path) -> None:
    agent = place.start_agent()
    job = place.client.submit(
        CommandJob(["sh", "-c", f"trap '' INT TERM; echo $$ > {tmp_path}/pid; echo up; while :; do echo x; sleep 0.2; done"])
    )
    assert next(job.follow_logs()).text.rstrip("\n") == "up"
    runner = next(iter(agent.agent._runners.values()))
    # Another worker's word for this boot: the control plane counts the attempt as lost from here on.
    agent.agent._say_goodbye()
    assert job.wait(30).state is JobState.FAILED
    assert job.status.failure.reason == "lost"
    assert runner.join(30)
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()


def test_stopping_a_busy_worker_stops_its_job(place: WorkerPlace) -> None:
    agent = place.start_agent()
    job = place.client.submit(CommandJob(["sh", "-c", "echo up; exec sleep 600"], grace_seconds=3))
    assert next(job.follow_logs()).text.rstrip("\n") == "up"
    agent.agent.stop()
    agent.join()
    assert agent.error is None
    assert job.wait(30).state is JobState.FAILED
    assert job.status.failure.reason == "lost"
    assert place.client.workers() == []


def test_a_drained_worker_ends_when_its_job_has(place: WorkerPlace, tmp_path: Path) -> None:
    agent = place.start_agent()
    job = place.client.submit(CommandJob(["sh", "-c", f"echo up; while [ ! -e {tmp_path}/go ]; do :; done"]))
    assert next(job.follow_logs()).text.rstrip("\n") == "up"
    place.client.drain_worker(agent.agent.worker_id)
    second = place.client.submit(CommandJob(["true"]))
    (tmp_path / "go").touch()
    assert job.wait(30).state is JobState.SUCCEEDED
    agent.join()
    assert agent.error is None
    assert second.state is JobState.QUEUED


def test_two_workers_of_one_host_have_their_own_cpu_devices(place: WorkerPlace) -> None:
    for name in ("a", "b"):
        place.start_agent(name=name, cpu_devices=2)
    devices = [device.id for worker in place.client.workers() for device in worker.devices if device.accelerator == "cpu"]
    assert len(set(devices)) == 4


def test_a_worker_of_another_protocol_version_ends_with_the_reason(place: WorkerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "PROTOCOL_VERSION", PROTOCOL_VERSION + 2)
    way = CuttableTransport(place.control_plane.worker_transport())
    agent = RunningAgent(agent_module.Agent(way, WorkerConfig(name="w", work_dir=place.work_dir, cpu_devices=1)), way)
    agent.join()
    assert isinstance(agent.error, ProtocolMismatch)
    assert "Upgrade" in str(agent.error)


def test_an_idle_local_worker_ends_when_its_server_has_been_gone_for_long(place: WorkerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "LOCAL_WORKER_IDLE_SECONDS", 0.3)
    way = CuttableTransport(place.control_plane.worker_transport())
    agent = place.start_agent(local=True, transport=way)
    way.cut()
    place.client.submit(CommandJob(["true"]))  # ends the held acquire, whose answer is cut off
    agent.join()
    assert agent.error is None


def test_a_busy_worker_gives_its_job_up_after_the_orphan_limit(place: WorkerPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    way = CuttableTransport(place.control_plane.worker_transport())
    agent = place.start_agent(local=True, transport=way)
    job = place.client.submit(CommandJob(["sh", "-c", f"echo $$ > {tmp_path}/pid; echo up; exec sleep 600"]))
    assert next(job.follow_logs()).text.rstrip("\n") == "up"
    monkeypatch.setattr(settings, "ORPHAN_LIMIT_SECONDS", 0.5)
    monkeypatch.setattr(settings, "LOCAL_WORKER_IDLE_SECONDS", 0.5)
    way.cut()
    job.cancel()  # ends the held acquire, whose answer is cut off
    agent.join()
    assert agent.error is None
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_an_agent_goes_on_with_the_next_server_of_its_home(place: WorkerPlace) -> None:
    first = CuttableTransport(place.control_plane.worker_transport())
    second = CuttableTransport(place.control_plane.worker_transport())
    agent = place.start_agent(transport=first, rediscover=lambda: second)
    first.cut()
    job = place.client.submit(CommandJob(["sh", "-c", "echo there; sleep 0.2"])).wait(60)
    assert job.state is JobState.SUCCEEDED
    assert _lines(job) == ["there"]
    assert agent.error is None
    assert second.seen("finish_task")


def test_a_refused_worker_ends_its_jobs_and_says_why(place: WorkerPlace, tmp_path: Path) -> None:
    agent = place.start_agent()
    job = place.client.submit(CommandJob(["sh", "-c", f"echo $$ > {tmp_path}/pid; echo up; exec sleep 600"]))
    assert next(job.follow_logs()).text.rstrip("\n") == "up"

    def refuse(name: str, answer) -> bool:
        if name == "acquire_task":
            raise NotAuthenticated("This token is not known any more.")
        return False

    agent.transport.lose_answer = refuse
    job.cancel(force=True)
    agent.join()
    assert isinstance(agent.error, NotAuthenticated)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


@pytest.mark.usefixtures("each_word_apart")
def test_a_busy_server_is_asked_again_and_no_job_is_lost(place: WorkerPlace) -> None:
    agent = place.start_agent(cpu_devices=2)
    job = place.client.submit(CommandJob(["sh", "-c", "echo up; exec sleep 600"], grace_seconds=1))
    assert next(job.follow_logs()).text.rstrip("\n") == "up"
    refused: list[str] = []

    def refuse(name: str, answer) -> bool:
        if name in ("acquire_task", "start_task", "append_logs", "finish_task") and refused.count(name) < 2:
            refused.append(name)
            raise TooManyCalls("Too many calls of this identity are waiting.")
        return False

    agent.transport.lose_answer = refuse
    assert place.client.submit(CommandJob(["sh", "-c", "echo there; sleep 0.2"])).wait(60).state is JobState.SUCCEEDED
    agent.transport.wait_for_call("finish_task", 3)
    assert sorted(refused) == sorted(2 * ("acquire_task", "start_task", "append_logs", "finish_task"))
    assert job.refresh().state is JobState.RUNNING
    job.cancel()
    assert job.wait(30).state is JobState.CANCELLED
    assert agent.error is None


def test_output_that_the_workers_disk_cannot_hold_fails_the_job(place: WorkerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self, chunk):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(log_backlog._Spool, "append", full)
    monkeypatch.setattr(task_runner, "LogSender", functools.partial(LogSender, memory_bytes=0))
    place.start_agent()
    job = place.client.submit(CommandJob(["sh", "-c", "while :; do echo x; done"])).wait(60)
    assert job.state is JobState.FAILED
    assert "No space left on device" in job.status.failure.message
    assert job.status.failure.worker == "w"


def test_a_stop_order_for_what_does_not_run_here_is_answered_again(place: WorkerPlace) -> None:
    agent = place.start_agent()
    job = place.client.submit(CommandJob(["sh", "-c", "echo up; exec sleep 600"], grace_seconds=1))
    assert next(job.follow_logs()).text.rstrip("\n") == "up"
    with agent.agent._lock:
        ((ref, runner),) = agent.agent._runners.items()
        del agent.agent._runners[ref]  # as after a restart of which the control plane knows nothing
    lost: list[str] = []

    def drop(name: str, request) -> None:
        if name == "finish_task" and len(lost) < 2:
            lost.append(name)
            raise ServerUnreachable("The connection was cut.")

    agent.transport.before_call = drop
    job.cancel()
    assert job.wait(30).state is JobState.CANCELLED
    assert len(lost) == 2
    runner.lose("the test is over")
    assert runner.join(30)
