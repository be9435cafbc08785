"""Following a job in a terminal: its lines marked with their rank, its states on stderr, Ctrl-C as cancel."""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from gpulayer.client.display_text import display_text
from gpulayer.client.following import Following, follow_through_interrupts
from gpulayer.client.job import Job
from gpulayer.client.log_lines import LineAssembler, LogLine
from gpulayer.client.status_text import one_line
from gpulayer.errors import InvalidSpec
from gpulayer.protocol import Display, JobStatus, LogPage
from gpulayer.spec import DistributedJob, node_count
from gpulayer.states import JobState

RUNS_FOLDER = "gpulayer_runs"
SILENCE_SECONDS = 2.0
"""So long a job that has been placed may print nothing before it is said why."""


def follow_in_terminal(job: Job) -> None:
    """Say which job it is, show it until it has ended, fetch its outputs into `gpulayer_runs/<id>/`, raise if it did not go well.

    The first Ctrl-C cancels the job, the second kills it; both times this waits for its end.

    Raises:
        KeyboardInterrupt: there was a Ctrl-C, and the job has ended.
        JobFailed: it failed, or somebody else cancelled it.
        InvalidSpec: it succeeded, and some of its outputs could not be fetched.
    """
    status = job.status
    shape = f"{node_count(status.spec)} × {status.spec.devices}"
    say(f"job {job.id} {job.name!r}, {shape}, {job.client.description}")
    view = _View(job)

    def say_order(interrupts: int) -> None:
        say(f"cancelling {job.id} (again: kill it)" if interrupts == 1 else f"killing {job.id}")

    interrupts = follow_through_interrupts(job, view.show_all, on_interrupt=say_order, displays=True)
    if job.status.state.is_terminal:
        say(f"job {job.id} {one_line(job.status)}")
    refused = _fetch_outputs(job)
    if refused is not None and (interrupts or job.state is not JobState.SUCCEEDED):
        say(refused.two_lines())  # the job's own end is what is raised
    if interrupts:
        raise KeyboardInterrupt
    job.result()
    if refused is not None:
        raise refused


def _fetch_outputs(job: Job) -> InvalidSpec | None:
    """Fetch what the job left; what came and what was refused are both told."""
    if not job.outputs:
        return None
    folder = Path(RUNS_FOLDER) / job.id
    refused = None
    try:
        job.download(folder)
    except InvalidSpec as error:
        refused = error
    say(f"outputs: {folder}/")
    return refused


def exit_code(job: Job) -> int:
    """The job's exit code as a shell has it: 128+N after signal N, 130 when it was cancelled."""
    if job.state is JobState.SUCCEEDED:
        return 0
    if job.state is JobState.CANCELLED:
        return 130
    code = job.exit_code
    if code is None:
        return 1
    return 128 - code if code < 0 else (code or 1)


def mark_of(rank: int | None, stream: str) -> str:
    """`[rank 1]`, `[rank 1 err]`; `[launcher]` for what no rank printed (ADR-0026)."""
    who = f"rank {rank}" if rank is not None else "launcher"
    return f"[{who} err]" if stream == "stderr" else f"[{who}]"


def print_line(line: LogLine, out: TextIO | None = None) -> None:
    """One line after its mark; where no place is given, on the stream of the same name that it was printed to."""
    out = out or (sys.stderr if line.stream == "stderr" else sys.stdout)
    # torch.distributed marks the lines of a traceback itself, with the rank that ours names already.
    text = line.text.removeprefix(f"[rank{line.rank}]: ") if line.stream == "stderr" else line.text
    out.write(f"{mark_of(line.rank, line.stream)} {text}\n")
    out.flush()


def say(text: str) -> None:
    """A word of GPUlayer's own, apart from the job's output."""
    sys.stderr.write(f"gpulayer: {text}\n")
    sys.stderr.flush()


class _View:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._lines = LineAssembler()
        self._said = ""
        self._start_is_told = not isinstance(job.status.spec, DistributedJob)
        self._silent_since: float | None = None  # since the job has been placed
        self._show_status(job.status)

    def show_all(self, following: Following) -> None:
        while True:
            try:
                news = following.next(self._silence_left())
            except queue.Empty:
                self._tell_start()
                continue
            if news is None:
                break
            if isinstance(news, JobStatus):
                self._show_status(news)
            elif isinstance(news, LogPage):
                self._start_is_told = self._start_is_told or bool(news.chunks)
                self._show_lines(self._lines.feed(news.chunks))
            else:
                self._show_display(news)
        self._show_lines(self._lines.finish())

    def _silence_left(self) -> float | None:
        """How long it may go on; None where nothing is to be said about it."""
        if self._start_is_told or self._silent_since is None:
            return None
        return max(0.0, self._silent_since + SILENCE_SECONDS - time.monotonic())

    def _tell_start(self) -> None:
        self._start_is_told = True
        say("ranks are starting: importing torch takes seconds, the first time on a machine longer")

    @staticmethod
    def _show_lines(lines: Iterable[LogLine]) -> None:
        for line in lines:
            print_line(line)

    def _show_display(self, display: Display) -> None:
        """Its text as lines of its rank, on stdout as if the rank had printed it."""
        for line in display_text(display, self._job.client).splitlines():
            sys.stdout.write(f"{mark_of(display.rank, 'stdout')} {line}\n")
        sys.stdout.flush()

    def _show_status(self, status: JobStatus) -> None:
        text = status.waiting_for if status.state is JobState.QUEUED else None
        is_placed = status.state is JobState.RUNNING or (status.waiting is not None and status.waiting.reason == "starting")
        self._silent_since = (self._silent_since or time.monotonic()) if is_placed else None
        if text and text != self._said:
            say(f"waiting: {text}")
        self._said = text or ""
