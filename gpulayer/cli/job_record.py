"""A job as an object for programs: short as listings have it, whole as `gpulayer jobs show` has it.

Its variables are left out of both: they may be secrets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gpulayer.client.listings import failure_note
from gpulayer.client.waterfall import Span
from gpulayer.protocol import JobStatus
from gpulayer.spec import DistributedJob, node_count


def job_record(status: JobStatus) -> dict[str, Any]:
    """A job as listings show it."""
    return {
        "id": status.job_id,
        "name": status.name,
        "owner": status.owner,
        "state": status.state.value,
        "nodes": node_count(status.spec),
        "devices": status.spec.devices,
        "accelerator": status.accelerator,
        "attempt": status.attempt,
        "created_at": status.created_at,
        "started_at": status.started_at,
        "ended_at": status.ended_at,
        "waiting_for": status.waiting_for,
        "failure": failure_note(status),
        "tasks": [
            {"node": task.node, "state": task.state.value, "worker": task.worker, "host": task.host, "devices": list(task.devices)}
            for task in status.tasks
        ],
        "failure_details": msgspec.to_builtins(status.failure),
    }


def whole_record(status: JobStatus, spans: Sequence[Span]) -> dict[str, Any]:
    """The same with who started the ranks, how each of them ended, what they left, and where the time went."""
    return {
        **job_record(status),
        "launcher": status.spec.launcher if isinstance(status.spec, DistributedJob) else None,
        "tasks": msgspec.to_builtins(status.tasks),
        "waterfall": msgspec.to_builtins(spans),
    }
