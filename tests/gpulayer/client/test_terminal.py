from __future__ import annotations

import signal
import threading

import pytest
from support.client import chunk, job_status

from gpulayer.client.terminal import follow_in_terminal, mark_of
from gpulayer.protocol import LogPage
from gpulayer.states import JobState


class InterruptedJob:
    """A job at whose first line, and at the order to cancel, somebody presses Ctrl-C; it ends when it is killed."""

    id = "j1"
    outputs = {}

    def __init__(self) -> None:
        self.orders: list[bool] = []
        self.followed = 0
        self._ended = threading.Event()

    def follow_pages(self, rank):
        self.followed += 1
        # It may come at any moment: also before the first line is shown.
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        yield LogPage(chunks=(chunk(b"first\n", sequence=1),), next=1, complete=False)
        self._ended.wait(10)
        yield LogPage(chunks=(chunk(b"last\n", sequence=2, offset=6, first_line=1),), next=2, complete=True)

    def follow_status(self, stop):
        self._ended.wait(10)
        yield job_status(JobState.CANCELLED)

    def cancel(self, force=False):
        self.orders.append(force)
        if not force:
            raise KeyboardInterrupt
        self._ended.set()


def test_each_interrupt_orders_once_and_nothing_is_read_again(capsys):
    job = InterruptedJob()
    with pytest.raises(KeyboardInterrupt):
        follow_in_terminal(job)
    assert job.orders == [False, True]
    assert job.followed == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines() == ["[rank 0] first", "[rank 0] last"]
    assert captured.err.splitlines() == ["gpulayer: cancelling j1 (again: kill it)", "gpulayer: killing j1"]


def test_every_line_is_marked_with_who_printed_it():
    assert [mark_of(0, "stdout"), mark_of(1, "stderr"), mark_of(None, "stderr")] == ["[rank 0]", "[rank 1 err]", "[launcher err]"]
