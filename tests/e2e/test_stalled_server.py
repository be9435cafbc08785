"""A server that accepts and never answers (SIGSTOP) stalls no job: it goes on printing, ends in time, and all of it arrives later."""

import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
from support.served import served_notebooks

import gpulayer
from gpulayer.states import JobState

pytestmark = pytest.mark.e2e

LINES = 20_000
CODE = f"""
import os, pathlib, sys, threading
folder = pathlib.Path(sys.argv[1])
print("started", os.getpid(), flush=True)
while not (folder / "gate").exists():
    threading.Event().wait(0.01)
for number in range({LINES}):
    print("line", number, flush=True)
    print("error", number, file=sys.stderr)
(folder / "done").touch()
"""


def _wait_until(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def test_a_job_goes_on_and_ends_while_the_server_is_stopped(tmp_path: Path) -> None:
    with served_notebooks(tmp_path, workers=1, cpu_devices=1) as served:
        server = psutil.Process(served.server.pid)
        job = served.client.submit(gpulayer.CommandJob(["python", "-c", CODE, str(tmp_path)]))
        first = next(job.follow_logs()).text
        process = psutil.Process(int(first.split()[1]))
        os.kill(server.pid, signal.SIGSTOP)
        try:
            _wait_until(lambda: server.status() == psutil.STATUS_STOPPED)
            (tmp_path / "gate").touch()
            # Far less than a lease: whatever waited for the server would wait longer.
            _wait_until((tmp_path / "done").exists, 10)
            _wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, 10)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert job.wait(timeout=60).state is JobState.SUCCEEDED
        assert job.status.attempt == 1
        lines = [(line.stream, line.text) for line in job.logs()]
    assert [text for stream, text in lines if stream == "stdout"] == [first, *(f"line {number}" for number in range(LINES))]
    assert [text for stream, text in lines if stream == "stderr"] == [f"error {number}" for number in range(LINES)]
