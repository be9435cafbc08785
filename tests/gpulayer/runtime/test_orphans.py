"""kill -9 of each process that a job's ranks depend on: what is the job's ends within two seconds, and nobody else does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.runtime import WatchedProcess

END_SECONDS = 2.0
TESTS = Path(__file__).parents[2]

AGENT = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from support.runtime import start_task
from gpulayer.runtime.process import Keeper
from gpulayer.runtime.zygote import Zygote
launcher, folder, source = sys.argv[2], Path(sys.argv[3]), sys.argv[4]
keeper = Keeper.start()
zygote = None
if launcher == "warm":
    zygote = Zygote(keeper, ("json",), parked=2)  # what is imported there has no part in this
    assert zygote.wait_ready(lambda: False) is None
task = start_task(keeper, folder, {"main.py": source}, script="main.py", devices=2, launcher=launcher, zygote=zygote)
for rank in range(2):
    task.events.wait_for("\\n", rank)
pids = " ".join(task.events.text(rank).strip() for rank in range(2))
print(keeper.pid, zygote.pid if zygote else 0, pids, flush=True)
result = task.result(120)
print(result.state, result.failure.reason, [rank.launcher for rank in result.ranks], flush=True)
sys.stdin.read()
"""
# Each rank: a child in a session of its own, a daemon that ignores SIGTERM, and loader-like children blocked in a pipe.
RANK = """
import multiprocessing, os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(writer, b"%d" % os.getpid())
        signal.pause()
    os._exit(0)
daemon = os.read(reader, 20).decode()
receiver, sender = multiprocessing.Pipe()
loaders = [multiprocessing.get_context("fork").Process(target=receiver.recv) for _ in range(2)]
for loader in loaders:
    loader.start()
print(os.getpid(), child.pid, daemon, *[loader.pid for loader in loaders], flush=True)
while True:
    signal.pause()
"""


class Agent:
    """A process that runs a two-rank job, as a worker does."""

    def __init__(self, launcher: str, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", AGENT, str(TESTS), launcher, str(folder), RANK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.keeper, self.zygote, *pids = map(int, self.read_line().split())
        self.first_rank = pids[0]
        self.job = [WatchedProcess(pid) for pid in pids]

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        for watched in self.job:
            watched.close()


@pytest.fixture(params=["torchrun", "direct", "warm"])
def agent(request, tmp_path):
    agent = Agent(request.param, tmp_path)
    yield agent
    agent.close()


@pytest.mark.parametrize("victim", ["agent", "keeper", "rank", "its session"])
def test_what_is_the_jobs_ends_and_nothing_else(agent, stranger, victim):
    match victim:
        case "agent":
            agent.process.kill()
        case "keeper":
            os.kill(agent.keeper, signal.SIGKILL)
        case "rank":
            os.kill(agent.first_rank, signal.SIGKILL)
        case _:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(os.getpgid(agent.first_rank), signal.SIGKILL)
    until = time.monotonic() + END_SECONDS
    assert [watched.pid for watched in agent.job if not watched.has_ended(max(0.0, until - time.monotonic()))] == []
    assert stranger.poll() is None
    if victim == "agent":
        assert agent.read_line() == ""
    else:
        assert agent.read_line().startswith("failed lost" if victim == "keeper" else "failed rank")
