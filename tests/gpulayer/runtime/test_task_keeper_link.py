"""The agent's end of a task keeper, against one that is played here."""

from __future__ import annotations

import errno
import os
import select
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpulayer.errors import Interrupted
from gpulayer.runtime import task_keeper_link
from gpulayer.runtime.channel import Channel
from gpulayer.runtime.frames import FrameSocket
from gpulayer.runtime.task_keeper_link import TaskKeeperLink

EXITED = {"event": "exited", "code": 0, "peak_bytes": 1, "has_others": False}


class Task:
    """What a task hears."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def hear(self, message) -> None:
        self.heard.append(message["pid"])

    def lose(self) -> None:
        raise AssertionError("the keeper's part")


@pytest.fixture
def taking():
    """A thread that takes what is parked, while its link is heard here."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def played(thread, tmp_path):
    """A link, and the task keeper's end of its connection."""
    ours, theirs = socket.socketpair()
    channel = Channel(thread, tmp_path / "channel")
    link = TaskKeeperLink(FrameSocket(ours), channel, {"A": "1", "B": "2"})
    link.task = Task()
    task_keeper = FrameSocket(theirs)
    yield link, task_keeper
    link.lose()
    channel.close()
    link.connection.close()
    task_keeper.close()


def park(task_keeper: FrameSocket, pid: int) -> FrameSocket:
    """Announce a parked process; returns its own end."""
    ours, theirs = socket.socketpair()
    with ours:
        task_keeper.send({"event": "parked", "pid": pid}, [ours.fileno()])
    return FrameSocket(theirs)


def hear(link, until) -> None:
    """Take in what comes until then."""
    while not until():
        select.select([link.connection], [], [])
        assert link.receive()


def test_what_is_parked_is_given_out_in_order_and_spoken_to(played):
    link, task_keeper = played
    ends = [park(task_keeper, pid) for pid in (11, 12)]
    hear(link, lambda: len(link._parked) == 2)
    for pid, end in zip((11, 12), ends, strict=True):
        parked = link.take_parked()
        assert parked.pid == pid
        parked.connection.send({"n": pid})
        assert end.receive_one() == {"n": pid}
        parked.connection.close()
        end.close()


def test_one_that_is_announced_already_is_waited_for_and_not_asked_for(played, taking):
    link, task_keeper = played
    waiting = taking.submit(link.take_parked)
    end = park(task_keeper, 11)
    link.receive()
    parked = waiting.result(10)
    assert parked.pid == 11
    parked.connection.close()
    end.close()
    assert task_keeper.receive(wait=False) == []
    # The next one is not on its way.
    waiting = taking.submit(link.take_parked)
    assert task_keeper.receive_one() == {"op": "park", "count": 1}
    end = park(task_keeper, 12)
    link.receive()
    parked = waiting.result(10)
    assert parked.pid == 12
    parked.connection.close()
    end.close()


def test_a_fork_that_failed_is_said_and_tried_again(played, taking):
    link, task_keeper = played
    task_keeper.send({"event": "park_failed", "errno": errno.EAGAIN})
    link.receive()
    waiting = taking.submit(link.take_parked)
    assert task_keeper.receive_one() == {"op": "park", "count": 1}
    task_keeper.send({"event": "park_failed", "errno": errno.ENOMEM})
    link.receive()
    with pytest.raises(OSError, match=os.strerror(errno.ENOMEM)):
        waiting.result(10)


def test_the_end_of_what_was_never_told_anything_is_nobodys(played):
    link, task_keeper = played
    end = park(task_keeper, 11)
    other = park(task_keeper, 12)
    task_keeper.send({**EXITED, "pid": 11, "parks": 0})
    hear(link, lambda: [parked.pid for parked in link._parked] == [12])
    given_up = link.take_parked()
    link.give_up(given_up)
    for pid in (12, 13):
        task_keeper.send({**EXITED, "pid": pid, "parks": 0})
    hear(link, lambda: link.task.heard)
    assert link.task.heard == [13]
    end.close()
    other.close()


def test_a_task_keeper_that_goes_interrupts_who_waits(played, taking):
    link, task_keeper = played
    waiting = taking.submit(link.take_parked)
    task_keeper.shutdown()
    assert not link.receive()
    link.lose()
    with pytest.raises(Interrupted):
        waiting.result(10)


def test_a_file_that_was_dropped_on_the_way_is_a_fork_that_failed(played, taking):
    link, task_keeper = played
    task_keeper.send({"event": "park_failed", "errno": errno.EAGAIN})
    hear(link, lambda: not link._coming)
    waiting = taking.submit(link.take_parked)
    assert task_keeper.receive_one() == {"op": "park", "count": 1}
    task_keeper.send({"event": "parked", "pid": 11})
    hear(link, lambda: not link._coming)
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        waiting.result(10)


def test_a_task_keeper_that_does_not_answer_is_not_waited_for_for_ever(played, monkeypatch):
    link, _ = played
    monkeypatch.setattr(task_keeper_link, "_PARK_SECONDS", 0.0)
    with pytest.raises(OSError, match=os.strerror(errno.ETIMEDOUT)):
        link.take_parked()


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"A": "1", "B": "2", "C": "3"}, (True, {"C": "3"})),
        ({"A": "1", "B": "2"}, (True, {})),
        ({"A": "1", "B": "other", "C": "3"}, (False, {"A": "1", "B": "other", "C": "3"})),
        ({"B": "2", "A": "1"}, (False, {"B": "2", "A": "1"})),
        ({"A": "1"}, (False, {"A": "1"})),
    ],
)
def test_only_what_comes_after_the_inherited_variables_is_sent(played, env, expected):
    link, _ = played
    assert link.without_inherited(env) == expected
