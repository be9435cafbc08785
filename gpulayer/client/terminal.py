"""Following a job in a terminal: its lines marked with their rank, its states on stderr, Ctrl-C as cancel."""

from __future__ import annotations

import sys
from pathlib import Path

from gpulayer.client.job import Job, LogLine
from gpulayer.client.log_lines import LineAssembler
from gpulayer.protocol import JobStatus, LogPage
from gpulayer.spec import CommandJob
from gpulayer.states import JobState

RUNS_FOLDER = "gpulayer_runs"


def follow_in_terminal(job: Job) -> None:
    """Show the job until it has ended, fetch its outputs into `gpulayer_runs/<id>/`, and raise if it did not go well.

    The first Ctrl-C cancels the job, the second kills it; both times this waits for its end.

    Raises:
        KeyboardInterrupt: there was a Ctrl-C, and the job has ended.
        JobFailed: it failed, or somebody else cancelled it.
    """
    view = _View(job)
    interrupts = 0
    while True:
        try:
            job.follow(on_page=view.show_page, on_status=view.show_status)
            break
        except KeyboardInterrupt:
            interrupts += 1
            say(f"cancelling {job.id} (again: kill it)" if interrupts == 1 else f"killing {job.id}")
            job.cancel(force=interrupts > 1)
    view.finish()
    if job.outputs:
        folder = Path(RUNS_FOLDER) / job.id
        job.download(folder)
        say(f"outputs: {folder}/")
    if interrupts:
        raise KeyboardInterrupt
    job.result()


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


def print_line(line: LogLine, *, marked: bool) -> None:
    """One line as it was printed, on the stream it was printed to, after the mark of its rank."""
    out = sys.stderr if line.stream == "stderr" else sys.stdout
    mark = "" if not marked else (f"[rank {line.rank}] " if line.rank is not None else "[launcher] ")
    out.write(f"{mark}{line.text}\n")
    out.flush()


def is_marked(status: JobStatus) -> bool:
    """Whether lines need a mark: one process alone needs none."""
    return not isinstance(status.spec, CommandJob) and status.spec.world_size > 1


def say(text: str) -> None:
    """A word of GPUlayer's own, apart from the job's output."""
    sys.stderr.write(f"gpulayer: {text}\n")
    sys.stderr.flush()


class _View:
    def __init__(self, job: Job) -> None:
        self._marked = is_marked(job.status)
        self._lines = LineAssembler()
        self._after = 0
        self._said = ""

    def show_page(self, page: LogPage) -> None:
        # After a Ctrl-C the job is followed from the start again.
        fresh = [chunk for chunk in page.chunks if chunk.sequence > self._after]
        if fresh:
            self._after = fresh[-1].sequence
        for line in self._lines.feed(fresh):
            print_line(line, marked=self._marked)

    def show_status(self, status: JobStatus) -> None:
        text = status.waiting_for if status.state is JobState.QUEUED else None
        if text and text != self._said:
            say(f"waiting: {text}")
        self._said = text or ""

    def finish(self) -> None:
        for line in self._lines.finish():
            print_line(line, marked=self._marked)
