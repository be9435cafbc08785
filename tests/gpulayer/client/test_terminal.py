from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from support.client import chunk, job_status

from gpulayer.client import terminal
from gpulayer.client.log_lines import LogLine
from gpulayer.client.terminal import mark_of, print_line
from gpulayer.errors import InvalidSpec, JobFailed
from gpulayer.protocol import Display, DisplayPayload, LogPage
from gpulayer.spec import DistributedJob
from gpulayer.states import JobState


class StubbornJob:
    """A job that prints a line and ends when it is killed; somebody presses Ctrl-C again while it is being cancelled."""

    id = "j1"
    name = "train"
    outputs = {}
    status = job_status(JobState.RUNNING)
    state = JobState.CANCELLED
    client = SimpleNamespace(description="here")

    def __init__(self) -> None:
        self.orders: list[bool] = []
        self.followed = 0
        self._ended = threading.Event()

    def follow_pages(self, rank, stop):
        self.followed += 1
        yield LogPage(chunks=(chunk(b"first\n", sequence=1),), next=1, complete=False)
        self._ended.wait(10)
        yield LogPage(chunks=(chunk(b"last\n", sequence=2, offset=6, first_line=1),), next=2, complete=True)

    def follow_status(self, stop):
        self._ended.wait(10)
        yield job_status(JobState.CANCELLED)

    def follow_displays(self, stop=None):
        data = {"text/plain": DisplayPayload(text="<table>\nof two lines"), "text/html": DisplayPayload(text="<table>")}
        yield Display(attempt=1, number=1, rank=0, time=1.0, data=data)

    def cancel(self, force=False):
        self.orders.append(force)
        if not force:
            raise KeyboardInterrupt
        self._ended.set()


def test_each_interrupt_orders_once_and_nothing_is_read_again(monkeypatch, capsys):
    def interrupted_after(line):
        print_line(line)
        if line.text == "first":
            raise KeyboardInterrupt  # as if Ctrl-C came then

    monkeypatch.setattr(terminal, "print_line", interrupted_after)
    job = StubbornJob()
    with pytest.raises(KeyboardInterrupt):
        terminal.follow_in_terminal(job)
    assert job.orders == [False, True]
    assert job.followed == 1
    captured = capsys.readouterr()
    said = captured.out.splitlines()
    assert [line for line in said if "table" not in line and "two" not in line] == ["[rank 0] first", "[rank 0] last"]
    assert [line for line in said if "table" in line or "two" in line] == ["[rank 0] <table>", "[rank 0] of two lines"]
    assert captured.err.splitlines() == [
        "gpulayer: job j1 'train', 1 × 1, here",
        "gpulayer: cancelling j1 (again: kill it)",
        "gpulayer: killing j1",
    ]


class StartingJob(StubbornJob):
    """Ranks that print nothing until somebody has said why."""

    status = job_status(JobState.RUNNING, spec=DistributedJob(script="train.py"), started_at=10.0)
    state = JobState.SUCCEEDED

    def follow_pages(self, rank, stop):
        self._ended.wait(10)
        yield LogPage(chunks=(chunk(b"first\n", sequence=1),), next=1, complete=True)

    def follow_status(self, stop):
        self._ended.wait(10)
        self.status = job_status(JobState.SUCCEEDED, spec=self.status.spec, started_at=10.0, ended_at=12.5)
        yield self.status

    def follow_displays(self, stop=None):
        return iter(())

    def result(self):
        return self.status


def test_silence_while_ranks_start_is_told_once_and_the_end_with_its_time(monkeypatch, capsys):
    said = terminal.say
    job = StartingJob()

    def say(text):
        said(text)
        if "ranks are starting" in text:
            job._ended.set()

    monkeypatch.setattr(terminal, "SILENCE_SECONDS", 0.0)
    monkeypatch.setattr(terminal, "say", say)
    terminal.follow_in_terminal(job)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "gpulayer: ranks are starting: importing torch takes seconds, the first time on a machine longer",
        "gpulayer: job j1 succeeded after 2.5 s · 1 node × 1 device (cpu)",
    ]


def test_a_mark_of_torchs_own_is_not_doubled(capsys):
    for text in ("[rank2]: Traceback", "[rank1]: of another"):
        print_line(LogLine(2, "stderr", 1, 0.0, text))
    print_line(LogLine(2, "stdout", 1, 0.0, "[rank2]: printed"))
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["[rank 2 err] Traceback", "[rank 2 err] [rank1]: of another"]
    assert captured.out == "[rank 2] [rank2]: printed\n"


def test_every_line_is_marked_with_who_printed_it():
    assert [mark_of(0, "stdout"), mark_of(1, "stderr"), mark_of(None, "stderr")] == ["[rank 0]", "[rank 1 err]", "[launcher err]"]


class EndedJob(StubbornJob):
    """One that has ended and left an output whose name is refused."""

    outputs = {"C:x": None}

    def __init__(self, state) -> None:
        super().__init__()
        self._ended.set()
        self.state = state

    def download(self, folder):
        raise InvalidSpec("a name is refused")

    def result(self):
        if self.state is JobState.FAILED:
            raise JobFailed("it failed")


@pytest.mark.parametrize(("state", "kind"), [(JobState.SUCCEEDED, InvalidSpec), (JobState.FAILED, JobFailed)])
def test_a_refused_output_hides_neither_the_others_nor_how_the_job_ended(capsys, state, kind):
    with pytest.raises(kind):
        terminal.follow_in_terminal(EndedJob(state))
    err = capsys.readouterr().err
    assert "gpulayer: outputs: gpulayer_runs/j1/" in err
    assert ("a name is refused" in err) is (kind is JobFailed)
