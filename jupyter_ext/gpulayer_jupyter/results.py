"""From a submitted job back to the kernel: follow it, stop it when the cell is interrupted, raise what went wrong.

Runs in the kernel's main thread; the control plane is asked from a thread of its own.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from gpulayer.client.following import MOST_INTERRUPTS, Following, ends_with_interrupt, follow_through_interrupts
from gpulayer.errors import GPUlayerError, JobFailed
from gpulayer.protocol import GetSource, JobStatus, LogPage
from gpulayer_jupyter.cell_places import program_of_source, tell_in_cells
from gpulayer_jupyter.export.script import Program
from gpulayer_jupyter.output.choose import place_for
from gpulayer_jupyter.output.display import OutputPlace
from gpulayer_jupyter.output.view_text import JobView
from gpulayer_jupyter.rich_output import publish

PROGRAMS_KEPT = 200
"""Of how many jobs this kernel remembers what they ran; of others it is read from their source."""
SHUTDOWN_SECONDS = 0.25
"""How long after an interrupt a shutdown of the kernel is waited for before the job is cancelled."""
_programs: dict[str, Program] = {}


def remember_program(job: Any, program: Program) -> None:
    """Keep what the job runs: whoever attaches to it later from this kernel sees tracebacks in cells and lines as well."""
    _programs[job.id] = program
    while len(_programs) > PROGRAMS_KEPT:
        del _programs[next(iter(_programs))]


def program_of(job: Any) -> Program | None:
    """What the job runs, for its lines to be told as lines of cells; None where it was made of no cells."""
    if not job.status.spec.cells:
        return None
    if job.id not in _programs:
        try:
            source = job.client.call_patiently("read_source", GetSource(job_id=job.id))
        except GPUlayerError:
            return None  # its tracebacks are shown as the ranks wrote them
        program = program_of_source(source, job.status.spec.cells)
        if program is None:
            return None
        remember_program(job, program)
    return _programs[job.id]


def print_lines(lines: Iterable[str]) -> None:
    """Say these as the cell's own output."""
    for line in lines:
        print(line)  # noqa: T201 - the cell's own output


def follow_to_end(
    job: Any, shell: Any, *, program: Program | None = None, notes: list[str] | None = None, said: Iterable[str] = ()
) -> JobView:
    """Show a job under the cell until it has ended.

    `notes` stand in the job's text, which is not shown where a view draws the job; what is `said` stands above either.
    One interrupt stops the job and waits until its devices are free; a second one kills it. The one that Jupyter sends before it
    shuts a kernel down or restarts it is none of a person's: the job goes on.

    Raises:
        JobFailed: it did not succeed; shown as the guilty rank's own traceback.
        KeyboardInterrupt: after an interrupt, once the job has ended.
    """
    with ends_with_interrupt(job):
        if program is not None:
            remember_program(job, program)
        view = JobView(job.status, where=job.client.place, program=program)
        view.notes += notes or []
        print_lines(said)
        display = place_for(shell, job)
    with _closing(display, view, job):
        if follow_through_interrupts(
            job,
            lambda following: _show_until_end(following, view, display, job),
            is_leaving=None if job.client.is_embedded else lambda: is_kernel_ending(shell),
            displays=True,
        ):
            raise KeyboardInterrupt
        _raise_failure(job, view, program)
    return view


def is_kernel_ending(shell: Any) -> bool:
    """Whether the interrupt that has just come is followed by a shutdown: jupyter_client sends the two within milliseconds."""
    if getattr(shell, "kernel", None) is None:
        return False
    told = threading.Event()

    def on_exit(change: dict[str, Any]) -> None:
        if change["new"]:
            told.set()

    # Set by the thread of the control channel, which hears while a cell runs.
    shell.observe(on_exit, "exit_now")
    try:
        return bool(shell.exit_now) or told.wait(SHUTDOWN_SECONDS)
    finally:
        shell.unobserve(on_exit, "exit_now")


def watch_to_end(job: Any, shell: Any) -> None:
    """Show a job that runs already, from its first line on; an interrupt ends the watching only.

    Raises:
        JobFailed: it did not succeed; shown as the guilty rank's own traceback.
        KeyboardInterrupt: after an interrupt; the job goes on.
    """
    program = program_of(job)
    view = JobView(job.status, where=job.client.place, program=program)
    following = Following(job, displays=True)
    try:
        display = place_for(shell, job)
        with _closing(display, view, job):
            _show_until_end(following, view, display, job)
            _raise_failure(job, view, program)
    except KeyboardInterrupt:
        if not job.status.state.is_terminal:
            print(f"job {job.id} still runs: %gpulayer cancel {job.id}")  # noqa: T201 - the cell's own output
        raise
    finally:
        following.close()


def _raise_failure(job: Any, view: JobView, program: Program | None) -> None:
    """Raise what went wrong with its traceback once: in the error."""
    try:
        job.result()
    except JobFailed as failed:
        tell_in_cells(failed, job.status, program)
        failure = job.status.failure
        if failure is not None and failure.rank is not None and failed.details.get("traceback"):
            view.leave_out(failure.rank, str(failed.details["traceback"]))
        raise


@contextlib.contextmanager
def _closing(display: OutputPlace, view: JobView, job: Any) -> Iterator[None]:
    """However the block is left, the job is drawn as it stands then: nothing is drawn after that, so an interrupt must not keep it."""
    interrupt = None
    try:
        yield
    finally:
        for _ in range(MOST_INTERRUPTS):
            try:
                view.status = job.status
                display.close(view)
                break
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt


@contextlib.contextmanager
def _blocking() -> Iterator[None]:
    """Widgets are told that the kernel hears nothing while a cell follows a job."""
    sessions = sys.modules.get("gpulayer_jupyter.widgets.session")  # where it was never loaded there is no widget
    if sessions is not None:
        sessions.tell_all_blocked(True)
    try:
        yield
    finally:
        sessions = sys.modules.get("gpulayer_jupyter.widgets.session")
        if sessions is not None:
            sessions.tell_all_blocked(False)


@_blocking()
def _show_until_end(following: Following, view: JobView, display: OutputPlace, job: Any) -> None:
    while True:
        try:
            item = following.next(timeout=display.pending_seconds())
        except queue.Empty:
            display.show(view, [])
            continue
        if item is None:
            display.show(view, view.finish())
            return
        lines = []
        if isinstance(item, JobStatus):
            view.status = item
        elif isinstance(item, LogPage):
            lines = view.add_page(item)
        else:
            # Below the job's own output, which has to be there first.
            display.show(view, [])
            publish(item, job)
        display.show(view, lines)
