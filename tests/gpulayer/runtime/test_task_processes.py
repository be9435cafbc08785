"""A task's processes: how a start that is not waited for goes."""

from __future__ import annotations

import os
import queue
import signal
import threading

import pytest

from gpulayer.runtime import task_processes
from gpulayer.runtime.process import Keeper
from gpulayer.runtime.task_processes import StartFailed

OPTIONS = {"cwd": "/", "env": {"PATH": os.environ["PATH"]}, "stdout": 1, "stderr": 2}


@pytest.fixture
def own_keeper():
    keeper = Keeper.start()
    yield keeper
    keeper.close()


def stop_parked(task) -> int:
    """SIGSTOP the process that the task would start from."""
    parked = task._link.take_parked()
    os.kill(parked.pid, signal.SIGSTOP)
    task._link._parked.appendleft(parked)
    return parked.pid


def test_a_start_is_known_once_the_process_runs(own_keeper):
    ended: queue.SimpleQueue = queue.SimpleQueue()
    task = own_keeper.open_task(ended.put, lambda: None)
    stopped = stop_parked(task)
    pid = task.launch(["sleep", "1000"], **OPTIONS)
    assert pid == stopped
    assert not task.is_started(pid)
    told = threading.Event()
    task.when_started(pid, told.set)
    os.kill(pid, signal.SIGCONT)
    assert told.wait(10)
    assert task.is_started(pid)
    assert not task.is_empty
    task.signal(pid, signal.SIGTERM)
    assert ended.get(timeout=10).signal == signal.SIGTERM
    assert task.is_empty
    task.close()


def test_a_parked_process_that_somebody_stopped_is_a_start_that_failed(own_keeper, monkeypatch):
    task = own_keeper.open_task(lambda _: None, lambda: None)
    stop_parked(task)
    monkeypatch.setattr(task_processes, "START_SECONDS", 1.0)
    with pytest.raises(StartFailed, match="longer than 1 s"):
        task.start_process(["true"], **OPTIONS)
    assert task.end()
    task.close()


def test_several_processes_of_one_task_each_have_their_own_end(own_keeper):
    ended: queue.SimpleQueue = queue.SimpleQueue()
    task = own_keeper.open_task(ended.put, lambda: None)
    pids = [task.start_process(["sh", "-c", f"exit {code}"], **OPTIONS) for code in (3, 4, 5)]
    found = sorted((ended.get(timeout=10) for _ in pids), key=lambda end: end.exit_code)
    assert [(end.pid, end.exit_code) for end in found] == [(pid, code) for pid, code in zip(pids, (3, 4, 5), strict=True)]
    assert task.is_empty
    task.close()
    assert len(own_keeper._idle) == 1
