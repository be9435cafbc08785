"""What goes wrong once in fifty times: small counts here, whole ones in `make soak`."""

import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpulayer
from gpulayer.bundle.archive import Bundle
from gpulayer.embedded import EmbeddedControlPlane
from gpulayer.states import JobState

pytestmark = pytest.mark.e2e

LAUNCHERS_TESTED = ("torchrun", "direct", "warm")
ALL_REDUCE = b"""
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.full((1,), float(dist.get_rank()))
dist.all_reduce(total)
print("sum", int(total))
dist.destroy_process_group()
"""
# The gradient is the mean over the ranks: of 0 and 1 that is 0.5, and a step of 1.0 leaves each weight at -0.5.
ONE_STEP = b"""
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1, bias=False)
torch.nn.init.zeros_(model.weight)
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.SGD(wrapped.parameters(), lr=1.0)
wrapped(torch.full((1, 4), float(dist.get_rank()))).sum().backward()
optimizer.step()
print("weights", model.weight.tolist()[0])
dist.destroy_process_group()
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[gpulayer.Client]:
    plane = EmbeddedControlPlane.open(tmp_path / "home")
    try:
        yield plane.client()
    finally:
        plane.close()


def submit_two_ranks(client: gpulayer.Client, script: bytes, launcher: str) -> gpulayer.Job:
    return client.submit(gpulayer.DistributedJob(script="main.py", devices=2, launcher=launcher), source=Bundle({"main.py": script}))


def assert_both_printed(job: gpulayer.Job, line: str) -> None:
    assert job.wait(timeout=240).state is JobState.SUCCEEDED, job.status.failure
    assert [printed.text for rank in range(2) for printed in job.logs(rank=rank) if printed.stream == "stdout"] == [line, line]


def assert_started_by(job: gpulayer.Job, launcher: str) -> None:
    """Under another launcher's name a count would be a wrong one."""
    starts = [(outcome.launcher, outcome.cold_reason) for task in job.status.tasks for outcome in task.ranks]
    assert [started_by for started_by, _ in starts] == [launcher, launcher], starts


def soak_counts(counts: dict[str, int]) -> list[Any]:
    """Once each, and as often as is said in `make soak`."""
    return [(launcher, 1) for launcher in LAUNCHERS_TESTED] + [
        pytest.param(launcher, counts[launcher], marks=pytest.mark.soak) for launcher in LAUNCHERS_TESTED
    ]


@pytest.mark.parametrize(("launcher", "count"), soak_counts({"torchrun": 50, "direct": 200, "warm": 200}))
def test_good_jobs_in_a_row_all_succeed(client: gpulayer.Client, launcher: str, count: int) -> None:
    """What the interpreter's teardown does after the script's end is never reported as the job's failure."""
    client.ensure_local_workers(1, cpu_devices=2)
    for _ in range(count):
        job = submit_two_ranks(client, ONE_STEP, launcher)
        assert_both_printed(job, "weights [-0.5, -0.5, -0.5, -0.5]")
        assert_started_by(job, launcher)


@pytest.mark.parametrize("launcher", LAUNCHERS_TESTED)
@pytest.mark.parametrize(("rounds", "jobs"), [(1, 2), pytest.param(20, 8, marks=pytest.mark.soak)])
def test_jobs_at_once_never_fight_for_a_port(client: gpulayer.Client, launcher: str, rounds: int, jobs: int) -> None:
    client.ensure_local_workers(jobs, cpu_devices=2)
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 29500))
        stranger.listen()
        for _ in range(rounds):
            for job in [submit_two_ranks(client, ALL_REDUCE, launcher) for _ in range(jobs)]:
                assert_both_printed(job, "sum 1")


@pytest.mark.parametrize("count", [5, pytest.param(1000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("end", ["", "sys.stdout.flush(); os.abort()"])
def test_the_last_line_is_never_lost(client: gpulayer.Client, count: int, end: str) -> None:
    client.ensure_local_workers(2, cpu_devices=2)
    spec = gpulayer.CommandJob(["python", "-c", f"import os, sys; sys.stdout.write('END'); {end}"])
    for _ in range((count + 3) // 4):
        for job in [client.submit(spec) for _ in range(4)]:
            assert job.wait(timeout=60).state is (JobState.FAILED if end else JobState.SUCCEEDED)
            assert [line.text for line in job.logs() if line.stream == "stdout"] == ["END"]


@pytest.mark.parametrize(("processes", "threads", "jobs"), [(2, 4, 5), pytest.param(8, 64, 20, marks=pytest.mark.soak)])
def test_many_processes_share_one_home(tmp_path: Path, processes: int, threads: int, jobs: int) -> None:
    """No "database is locked", and every job that was accepted is there, from whichever process it came."""
    program = textwrap.dedent(
        f"""
        import sys
        from concurrent.futures import ThreadPoolExecutor
        import gpulayer
        client = gpulayer.connect("local")
        def submit(_):
            return [client.submit(gpulayer.CommandJob(["true"])).id for _ in range({jobs})]
        with ThreadPoolExecutor({threads}) as pool:
            for ids in pool.map(submit, range({threads})):
                print(*ids)
        """
    )
    environment = {"GPULAYER_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    running = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        for _ in range(processes)
    ]
    accepted: set[str] = set()
    for process in running:
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
        accepted |= set(out.split())
    assert len(accepted) == processes * threads * jobs
    plane = EmbeddedControlPlane.open(tmp_path / "home")
    try:
        client = plane.client()
        assert all(client.job(job_id).state is JobState.QUEUED for job_id in sorted(accepted)[:: max(1, len(accepted) // 50)])
    finally:
        plane.close()
