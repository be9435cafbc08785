"""The columns of jobs and of workers, and what stands in them: the same in `gpulayer jobs` and `%gpulayer jobs`."""

from __future__ import annotations

import time
from collections import Counter

from gpulayer.client.failures import raised_text, what_happened
from gpulayer.protocol import JobStatus, WorkerStatus
from gpulayer.spec import node_count
from gpulayer.states import JobState

JOB_COLUMNS = ("id", "name", "state", "shape", "accelerator", "age", "note")
WORKER_COLUMNS = ("id", "name", "host", "state", "devices", "held", "torch", "seen")


def job_row(status: JobStatus) -> dict[str, str]:
    """A job by column."""
    return {
        "id": status.job_id,
        "name": status.name,
        "state": status.state.value,
        "shape": f"{node_count(status.spec)} × {status.spec.devices}",
        "accelerator": status.accelerator or status.spec.accelerator,
        "age": age(status.created_at),
        "note": status.waiting_for or failure_note(status) or "",
    }


def failure_note(status: JobStatus) -> str | None:
    """Why a job ended badly, in one sentence without its subject; None where nothing is known or nothing went wrong."""
    if status.failure is None or status.state not in (JobState.FAILED, JobState.CANCELLED):
        return None
    raised = raised_text(status.failure) if status.state is JobState.FAILED and status.failure.reason == "rank" else None
    return raised or what_happened(status)


def worker_row(worker: WorkerStatus) -> dict[str, str]:
    """A worker by column."""
    kinds = Counter(device.accelerator for device in worker.devices)
    return {
        "id": worker.worker_id,
        "name": worker.name,
        "host": worker.host,
        "state": worker.state,
        "devices": ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())),
        "held": str(len(worker.devices_held)),
        "torch": worker.frameworks.get("torch", ""),
        "seen": f"{age(worker.last_seen_at)} ago",
    }


def age(since: float | None, until: float | None = None) -> str:
    """How long ago, or how long, in two digits or so: "8 s", "12 min", "3 h", "2 d"."""
    if since is None:
        return ""
    seconds = max(0.0, (until if until is not None else time.time()) - since)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
