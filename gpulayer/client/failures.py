"""How a job that ended badly is told: which rank failed first, where, how, and what its last words were."""

from __future__ import annotations

import signal

import msgspec

from gpulayer.errors import JobFailed
from gpulayer.protocol import Failure, JobStatus
from gpulayer.states import JobState


def job_failed(status: JobStatus) -> JobFailed:
    """The error for a job that has ended without success: one line that names the guilty, one that says what it said."""
    failure = status.failure
    error = JobFailed(
        f"Job {status.job_id} {status.name!r} {_what_happened(status)}",
        fix=_last_words(status),
        details={
            "job_id": status.job_id,
            "state": status.state.value,
            "failure": msgspec.to_builtins(failure) if failure is not None else None,
            "traceback": failure.error.traceback if failure is not None and failure.error is not None else None,
        },
    )
    if failure is not None and failure.error is not None:
        error.add_note(f"Traceback of rank {failure.rank}:\n{failure.error.traceback}")
    return error


def _what_happened(status: JobStatus) -> str:
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
        for word, value in (("node", failure.node), ("worker", failure.worker), ("device", failure.device))
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


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `signal 40` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_words(status: JobStatus) -> str:
    failure = status.failure
    read_more = f"Its output: gpulayer logs {status.job_id}"
    if failure is None:
        return f"{read_more}."
    if failure.rank is not None:
        read_more += f" --rank {failure.rank}"
    if failure.error is not None:
        message = failure.error.message.strip().splitlines()
        return f"{failure.error.type}: {message[0] if message else ''}".rstrip(": ") + f". {read_more}."
    if failure.signal is not None or failure.reason not in ("rank", "timeout"):
        said = failure.message.strip().rstrip(".")
    else:
        said = next((line.strip() for line in reversed(failure.last_lines) if line.strip()), "")
    return f"{said}. {read_more}." if said else f"{read_more}."
