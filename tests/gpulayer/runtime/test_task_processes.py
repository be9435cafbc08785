"""A task's processes: how a start that is not waited for goes."""

from __future__ import annotations

import os
import queue
import signal
import threading

import pytest

from gpulayer.runtime import task_keeper_link, task_processes
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
    assert len(own_keeper._pool._idle) == 1


def test_a_parked_process_that_is_killed_before_it_reads_is_no_start(own_keeper):
    ended: queue.SimpleQueue = queue.SimpleQueue()
    task = own_keeper.open_task(ended.put, lambda: None)
    stop_parked(task)
    pid = task.launch(["true"], **OPTIONS)
    os.kill(pid, signal.SIGKILL)
    assert ended.get(timeout=10).signal == signal.SIGKILL
    with pytest.raises(StartFailed, match="killed before it began"):
        task.is_started(pid)
    task.close()


def test_a_stopped_process_does_not_hold_up_a_word_that_is_larger_than_its_socket(own_keeper, monkeypatch):
    task = own_keeper.open_task(lambda _: None, lambda: None)
    stop_parked(task)
    monkeypatch.setattr(task_processes, "START_SECONDS", 1.0)
    env = {f"LARGE_{number}": "x" * 100_000 for number in range(10)}
    with pytest.raises(StartFailed, match="has not read what to become within 1 s"):
        task.launch(["true"], **{**OPTIONS, "env": env})
    assert task.end()
    task.close()


def test_a_large_word_arrives_whole(own_keeper, tmp_path):
    ended: queue.SimpleQueue = queue.SimpleQueue()
    task = own_keeper.open_task(ended.put, lambda: None)
    env = {**OPTIONS["env"], **{f"LARGE_{number}": "x" * 100_000 for number in range(10)}}
    task.start_process(["sh", "-c", 'test "${#LARGE_9}" = 100000'], **{**OPTIONS, "env": env})
    assert ended.get(timeout=10).exit_code == 0
    task.close()


def test_a_task_keeper_that_does_not_park_serves_no_other_task(own_keeper, monkeypatch):
    task = own_keeper.open_task(lambda _: None, lambda: None)
    link = task._link
    parked = link.take_parked()
    monkeypatch.setattr(task_keeper_link, "_PARK_SECONDS", 0.0)
    with pytest.raises(StartFailed, match="timed out"):
        task.launch(["true"], **OPTIONS)
    monkeypatch.undo()
    parked.connection.close()
    task.close()
    assert link not in own_keeper._pool._idle
    after = own_keeper.open_task(lambda _: None, lambda: None)
    assert after.start_process(["true"], **OPTIONS) > 0
    after.close()


def test_a_number_that_comes_again_is_another_process(own_keeper):
    ended: queue.SimpleQueue = queue.SimpleQueue()
    task = own_keeper.open_task(ended.put, lambda: None)
    parked = task._link.take_parked()
    task._link._given_up.add(parked.pid)
    task._link._hear({"event": "parked", "pid": parked.pid}, [os.dup(parked.connection.fileno())])
    parked.connection.close()
    pid = task.start_process(["true"], **OPTIONS)
    assert ended.get(timeout=10).pid == pid
    task.close()
