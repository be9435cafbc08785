"""How a job that ended badly is told: which rank failed first, where, how, what became of the others, and what it raised."""

from __future__ import annotations

import re
import signal

import msgspec

from gpulayer.client.frame_places import Place, crash_frames, file_and_line, in_function, own_frame
from gpulayer.client.other_ranks import other_ranks
from gpulayer.client.surroundings import command_text
from gpulayer.errors import JobFailed
from gpulayer.protocol import Failure, JobStatus, RankError
from gpulayer.states import JobState

_BOOT = re.compile(r"@[0-9a-f]{1,8}(?=,|$)")


def job_failed(status: JobStatus, place: Place = file_and_line) -> JobFailed:
    """The error for a job that has ended without success.

    Line by line: the guilty; how the other ranks ended and what they were doing, where there were any; how a module that was
    missing would get there; what the guilty one raised and where, if it did; where its output is.

    Args:
        status: the job's last record.
        place: how a frame's file and line are written.
    """
    failure = status.failure
    error = JobFailed(
        "\n".join([f"Job {status.job_id} {status.name!r} {what_happened(status)}", *other_ranks(status, place), *_missing_module(failure)]),
        fix="\n".join(
            [*_reason(status, place), f"Its output: {logs_command(status.job_id, failure.rank if failure is not None else None)}"]
        ),
        details={
            "job_id": status.job_id,
            "state": status.state.value,
            "failure": msgspec.to_builtins(failure) if failure is not None else None,
            "traceback": failure.error.traceback if failure is not None and failure.error is not None else None,
            "ranks": [
                {"node": task.node, "worker": task.worker, **msgspec.to_builtins(rank)} for task in status.tasks for rank in task.ranks
            ],
        },
    )
    if failure is not None and failure.error is not None:
        error.add_note(f"Traceback of rank {failure.rank}:\n{failure.error.traceback}")
    elif failure is not None and any(line.strip() for line in failure.last_lines):
        # For who has not seen the output. It is no reason, so it does not stand in the message.
        who = f"rank {failure.rank}" if failure.rank is not None else "the launcher"
        error.add_note("\n".join([f"The last lines of {who}:", *failure.last_lines]))
    return error


def logs_command(job_id: str, rank: int | None = None) -> str:
    """What shows a job's output, as a person writes it here: behind `%` in a notebook, bare in a terminal."""
    return command_text(f"logs {job_id}") + (f" --rank {rank}" if rank is not None else "")


def what_happened(status: JobStatus) -> str:
    """One sentence without its subject, the job."""
    failure = status.failure
    if status.state is JobState.CANCELLED:
        return "was cancelled."
    if failure is None:
        return "failed."
    where = _place(failure)
    if failure.reason == "timeout":
        seconds = status.spec.timeout_seconds
        return f"ran out of time{f' ({seconds:g} s)' if seconds else ''}{f': {where}' if where else ''}."
    if failure.reason == "rank" or failure.exit_code is not None or failure.signal is not None:
        return f"failed: {where or 'its process'} {_exit(failure)}."
    return f"failed: {failure.message.rstrip('.')}{f' ({where})' if where else ''}."


def _place(failure: Failure) -> str:
    rank = f"rank {failure.rank}" if failure.rank is not None else ("the launcher" if failure.reason == "launcher" else "")
    facts = [
        f"{word} {value}"
        for word, value in (("node", failure.node), ("worker", failure.worker), ("device", failure.device and device_text(failure.device)))
        if value is not None
    ]
    if not facts:
        return rank
    return f"{rank} ({', '.join(facts)})" if rank else ", ".join(facts)


def _exit(failure: Failure) -> str:
    if failure.signal is not None:
        return f"was ended by {signal_name(failure.signal)} (signal {failure.signal})"
    if failure.exit_code is not None:
        return f"exited with code {failure.exit_code}"
    return "failed"


def device_text(device: str) -> str:
    """A device's id, or several, without the mark of the boot that only tells machines apart: `cpu:0` for `cpu:0@d0c723e4`."""
    return _BOOT.sub("", device)


def raised_text(failure: Failure) -> str | None:
    """Which rank raised what, in a line: "rank 2 raised ValueError: bad batch 3"; None where nothing was raised."""
    if failure.error is None:
        return None
    who = f"rank {failure.rank}" if failure.rank is not None else "its process"
    return f"{who} raised {_error_line(failure.error)}"


def _error_line(error: RankError) -> str:
    message = error.message.strip().splitlines()
    return f"{error.type}: {message[0]}" if message else error.type


def _missing_module(failure: Failure | None) -> list[str]:
    """How a module that the guilty rank did not find would get there: a line, or none. Of one inside a package, the package is there."""
    if failure is None or failure.error is None or failure.error.type != "ModuleNotFoundError":
        return []
    missing = re.fullmatch(r"No module named ('[^'.]+')", failure.error.message.strip())
    if missing is None:
        return []
    brings = f"If the worker lacks a package {missing[1]}, --requirements FILE brings it"
    return [f"{brings}; a module of your own travels from the project's folder."]


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `signal 40` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _reason(status: JobStatus, place: Place) -> list[str]:
    """What the guilty rank raised and where, or who ended it and why: a line, or none. What it printed last is no reason."""
    failure = status.failure
    if failure is None:
        return []
    if failure.error is not None:
        said = _error_line(failure.error)
        own = own_frame(failure.error.frames)
        return [f"{said} ({in_function(own, place)})" if own is not None else said]
    # Without an exit, the first line has the message already.
    exited = failure.exit_code is not None or failure.signal is not None
    if exited and (failure.signal is not None or failure.reason not in ("rank", "timeout")):
        said = failure.message.strip()
        own = own_frame(crash_frames(failure.last_lines)) if failure.signal is not None else None
        return [f"{said} ({in_function(own, place)})" if own is not None else said] if said else []
    return []
