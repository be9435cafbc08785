"""A job's record told in a few words: its state, its shape, how long it runs, what it waits for and what would help.

The words of the job's output, of the handle's repr and of the terminal; tables are `listings`' matter.
"""

from __future__ import annotations

import time

from gpulayer.protocol import JobStatus
from gpulayer.spec import node_count
from gpulayer.states import JobState


def clock_text(seconds: float) -> str:
    """A duration as a clock shows it: 0:42, 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def took_text(seconds: float) -> str:
    """How long something took that is over: 0.9 s, 12 s, then as a clock shows it."""
    if seconds < 9.95:
        return f"{seconds:.{2 if seconds < 0.095 else 1}f} s"
    return f"{seconds:.0f} s" if seconds < 59.5 else clock_text(round(seconds))


def duration_text(seconds: float) -> str:
    """A step's time in the unit in which it is read: "0.8 ms", "43 ms", "2.41 s", "125 s"."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.{1 if seconds < 0.00995 else 0}f} ms"
    return f"{seconds:.{2 if seconds < 99.995 else 0}f} s"


def bytes_text(size_bytes: int) -> str:
    """A size in three digits: "812 B", "1.5 kB", "20 MB"."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def time_text(status: JobStatus, now: float | None = None) -> str | None:
    """How long its ranks have run, as a clock, or ran; None before they do."""
    elapsed = elapsed_seconds(status, now)
    if elapsed is None:
        return None
    return clock_text(elapsed) if status.ended_at is None else took_text(elapsed)


def shape_text(status: JobStatus) -> str:
    """How much it holds: "2 nodes × 1 device (cuda)"."""
    nodes, devices = node_count(status.spec), status.spec.devices
    kind = status.accelerator or status.spec.accelerator
    return f"{nodes} node{'s' if nodes > 1 else ''} × {devices} device{'s' if devices > 1 else ''} ({kind})"


def elapsed_seconds(status: JobStatus, now: float | None = None) -> float | None:
    """How long its ranks have run, or ran; None before they do."""
    if status.started_at is None:
        return None
    return max(0.0, (status.ended_at or (time.time() if now is None else now)) - status.started_at)


def state_text(status: JobStatus) -> str:
    """Its state, and what keeps it from being another one."""
    if not status.state.is_terminal and status.cancel_requested:
        return "stopping"
    if status.state is JobState.QUEUED and status.waiting_for:
        return f"queued: {status.waiting_for}"
    return str(status.state)


def ways_out(status: JobStatus) -> list[str]:
    """What a person can do so that a waiting job runs, a line each; empty where it only takes time."""
    waiting = status.waiting
    if waiting is None or status.state is not JobState.QUEUED or waiting.reason in ("starting", "busy"):
        return []
    lines = []
    if waiting.local_workers:
        devices = f", cpu_devices={status.spec.devices}" if status.spec.devices > 1 else ""
        call = f"gpulayer.connect().ensure_local_workers({waiting.local_workers}{devices})"
        lines.append(f"start {_workers(waiting.local_workers)} on the server's machine: {call}")
    lines.append("add a worker: gpulayer worker start (on another machine with --server URL and gpulayer token create --join)")
    return lines


def one_line(status: JobStatus) -> str:
    """State, how long it has run and its shape: "succeeded after 42 s · 2 nodes × 2 devices (cpu)"."""
    text = state_text(status)
    if (elapsed := time_text(status)) is not None:
        text += f" {'after' if status.state.is_terminal else 'for'} {elapsed}"
    return f"{text} · {shape_text(status)}"


def _workers(count: int) -> str:
    return f"{count} local worker{'s' if count > 1 else ''}"
