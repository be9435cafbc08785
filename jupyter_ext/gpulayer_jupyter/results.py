"""From a submitted job back to the kernel: follow it, stop it when the cell is interrupted, raise or load what it left.

Runs in the kernel's main thread; the control plane is asked from a thread of its own.
"""

from __future__ import annotations

import json
import queue
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpulayer.client.following import Following, follow_through_interrupts
from gpulayer.client.job import Job
from gpulayer.errors import Conflict, JobFailed, Unsupported
from gpulayer.protocol import JobStatus
from gpulayer_jupyter.cell_places import tell_in_cells
from gpulayer_jupyter.export.script import Program
from gpulayer_jupyter.output import Display, JobView, display_for

PROGRAMS_KEPT = 200
"""Of how many jobs this kernel remembers what they ran; the tracebacks of older ones are shown as the ranks wrote them."""
_programs: dict[str, Program] = {}


def remember_program(job: Any, program: Program) -> None:
    """Keep what the job runs: whoever attaches to it later from this kernel sees tracebacks in cells and lines as well."""
    _programs[job.id] = program
    while len(_programs) > PROGRAMS_KEPT:
        del _programs[next(iter(_programs))]


def follow_to_end(job: Any, shell: Any, *, program: Program | None = None, notes: list[str] | None = None) -> JobView:
    """Show a job under the cell until it has ended.

    One interrupt stops the job and waits until its devices are free; a second one kills it.

    Raises:
        JobFailed: it did not succeed; shown as the guilty rank's own traceback.
        KeyboardInterrupt: after an interrupt, once the job has ended.
    """
    if program is not None:
        remember_program(job, program)
    view = JobView(job.status, where=job.client.place, program=program)
    view.notes += notes or []
    display = display_for(shell, job.id)
    interrupted = follow_through_interrupts(job, lambda following: _show_until_end(following, view, display))
    view.status = job.status
    if interrupted:
        display.close(view)
        raise KeyboardInterrupt
    _close(job, view, display, program)
    return view


def watch_to_end(job: Any, shell: Any) -> None:
    """Show a job that runs already, from its first line on; an interrupt ends the watching only.

    Raises:
        JobFailed: it did not succeed; shown as the guilty rank's own traceback.
        KeyboardInterrupt: after an interrupt; the job goes on.
    """
    program = _programs.get(job.id)
    view = JobView(job.status, where=job.client.place, program=program)
    display = display_for(shell, job.id)
    following = Following(job)
    try:
        _show_until_end(following, view, display)
    except KeyboardInterrupt:
        display.close(view)
        print(f"job {job.id} still runs: %gpulayer cancel {job.id}")  # noqa: T201 - the cell's own output
        raise
    finally:
        following.close()
    view.status = job.status
    _close(job, view, display, program)


def _close(job: Any, view: JobView, display: Display, program: Program | None) -> None:
    """Draw the end, and raise what went wrong with its traceback once: in the error."""
    try:
        job.result()
    except JobFailed as failed:
        tell_in_cells(failed, job.status, program)
        failure = job.status.failure
        if failure is not None and failure.rank is not None and failed.details.get("traceback"):
            view.leave_out(failure.rank, str(failed.details["traceback"]))
        raise
    finally:
        display.close(view)


def _show_until_end(following: Following, view: JobView, display: Display) -> None:
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
        else:
            lines = view.add_page(item)
        display.show(view, lines)


def load_weights(job: Job, namespace: dict[str, Any], *, on_loaded: Callable[[str, Path], None]) -> list[str]:
    """Load the weights that the job's Trainers left into the models of the same names; returns what to say about it.

    Args:
        job: one that succeeded.
        namespace: the kernel's names.
        on_loaded: told each name and the file of its weights, which goes away afterwards.

    Raises:
        Conflict: they are not those of the model that has the name here.
    """
    files = {path: file for path, file in job.outputs.items() if Path(path).match("weights/fit*.safetensors")}
    if not files:
        return []
    # Where torch was never imported, no name is bound to one of its modules.
    torch = sys.modules.get("torch")
    said = []
    with tempfile.TemporaryDirectory(prefix="gpulayer-weights-") as folder:
        for path in sorted(files, key=lambda path: int(Path(path).stem.removeprefix("fit"))):
            here = Path(folder) / Path(path).name
            job.client.transport.get_artifact(files[path].sha256, here)
            name = _model_name(here)
            fit = int(Path(path).stem.removeprefix("fit"))
            model = namespace.get(name) if name else None
            if torch is None or not isinstance(model, torch.nn.Module):
                said.append(f"weights of fit {fit}{f' ({name})' if name else ''}: gpulayer.connect().job({job.id!r}).weights({fit})")
                continue
            try:
                model.load_state_dict(_load_file(here), strict=True)
            except RuntimeError as error:
                raise Conflict(
                    f"The job's weights do not fit the '{name}' of this kernel.",
                    found=str(error).splitlines()[0],
                    fix=f"Run the cell that builds '{name}' again, or read them with job.weights({fit}).",
                ) from error
            on_loaded(name, here)
            said.append(f"'{name}' holds the weights of fit {fit}")
    return said


def _model_name(file: Path) -> str:
    """The `gpulayer.model` of a safetensors file, read from its header (length, then JSON) without safetensors or torch."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    return str(header.get("__metadata__", {}).get("gpulayer.model", ""))


def _load_file(file: Path) -> dict[str, Any]:
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise Unsupported(
            "The job left weights, and loading them needs safetensors in this kernel.",
            found=str(error),
            fix="pip install torch safetensors",
        ) from error
    tensors: dict[str, Any] = load_file(file)
    return tensors
