"""kill -9 in the middle of a job: nothing stays "running" for ever, nothing accepted is lost."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from served_notebook import ServedKernel
from support.served import Served, served_notebooks

import gpulayer
from gpulayer.bundle.archive import Bundle
from gpulayer.states import JobState

pytestmark = pytest.mark.e2e

WAIT_FOR_GATE = b"""
import os, sys, threading
rank = os.environ["RANK"]
print("begin", rank, os.getpid())
for number in range(2000):
    print("line", number)
while not os.path.exists(sys.argv[1]):
    threading.Event().wait(0.05)
print("end", rank)
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with served_notebooks(tmp_path) as served:
        yield served


def start_job(served: Served, gate: Path, **options) -> gpulayer.Job:
    spec = gpulayer.DistributedJob(script="main.py", args=[str(gate)], nodes=2, devices=2, **options)
    job = served.client.submit(spec, source=Bundle({"main.py": WAIT_FOR_GATE}))
    begun = set()
    for line in job.follow_logs():
        if line.text.startswith("begin"):
            begun.add(line.rank)
        if len(begun) == 4:
            return job
    raise AssertionError(f"the job ended before its ranks had begun: {job.status.failure}")


def worker_process(served: Served, worker_name: str) -> psutil.Process:
    (found,) = [
        process
        for process in psutil.process_iter(["cmdline"])
        if process.info["cmdline"] and worker_name in process.info["cmdline"] and str(served.server.home) in process.info["cmdline"]
    ]
    return found


@pytest.mark.parametrize("launcher", ["torchrun", "warm"])
def test_kill_of_the_server(served: Served, tmp_path: Path, launcher: str) -> None:
    gate = tmp_path / "gate"
    job = start_job(served, gate, launcher=launcher)
    served.server.kill()
    gate.touch()
    served.server.restart()
    with gpulayer.connect(served.server.url, token=served.server.client_token) as client:
        again = client.job(job.id).wait(timeout=90)
        assert again.state is JobState.SUCCEEDED
        for rank in range(4):
            texts = [line.text for line in again.logs(rank=rank) if line.stream == "stdout"]
            assert texts[1:-1] == [f"line {number}" for number in range(2000)]
            assert texts[-1] == f"end {rank}"
        assert all(not worker.devices_held for worker in client.workers())


@pytest.mark.parametrize(("retries", "launcher"), [(0, "torchrun"), (1, "warm")])
def test_kill_of_a_worker(served: Served, tmp_path: Path, retries: int, launcher: str) -> None:
    gate = tmp_path / "gate"
    served.client.ensure_local_workers(2 + retries, cpu_devices=2)
    job = start_job(served, gate, retries=retries, launcher=launcher)
    ranks = [int(line.text.split()[2]) for line in job.logs() if line.text.startswith("begin")]
    victim = job.refresh().status.tasks[1].worker
    os.kill(worker_process(served, victim).pid, signal.SIGKILL)
    if retries:
        gate.touch()
    job.wait(timeout=120)
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in ranks if psutil.pid_exists(pid)], timeout=10)
    assert not alive
    if retries:
        assert job.state is JobState.SUCCEEDED
        assert job.status.attempt == 2
    else:
        assert job.state is JobState.FAILED
        assert job.status.failure is not None
        assert job.status.failure.reason == "lost"
        assert victim in job.status.failure.message


class KernelGone(Exception):
    """Leaves a cell that nobody answers any more."""


def test_kill_of_the_kernel(served: Served, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with ServedKernel(served.server.url, served.server.token, "test.ipynb") as kernel:
        pid = int(kernel.execute("%load_ext gpulayer\nimport os; print(os.getpid())").text)

        def kill(run, message) -> None:
            if all(f"begin {rank}" in run.text for rank in range(4)):
                os.kill(pid, signal.SIGKILL)
                raise KernelGone

        # Without the many lines, of which a cell shows the last.
        quiet = WAIT_FOR_GATE.decode().replace("range(2000)", "range(1)").replace("sys.argv[1]", repr(str(gate)))
        with pytest.raises(KernelGone):
            kernel.execute(f"%%gpulayer --nodes 2 --devices 2\n{quiet}", on_message=kill)
        (job,) = served.client.jobs()
        assert job.state is JobState.RUNNING
        gate.touch()
        assert job.wait(timeout=90).state is JobState.SUCCEEDED
        assert [list(job.logs(rank=rank))[-1].text for rank in range(4)] == [f"end {rank}" for rank in range(4)]


def test_submitted_before_any_worker_exists(tmp_path: Path) -> None:
    with served_notebooks(tmp_path, workers=0) as served:
        job = served.client.submit(gpulayer.CommandJob(["python", "-c", "print('ran')"]))
        assert job.state is JobState.QUEUED
        assert "no worker" in (job.status.waiting_for or "")
        starter = threading.Thread(target=served.client.ensure_local_workers, args=(1,))
        starter.start()
        job.wait(timeout=60)
        starter.join()
        assert [line.text for line in job.logs()] == ["ran"]
