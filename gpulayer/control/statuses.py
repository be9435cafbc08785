"""Rows as the messages that clients see: what a job and a worker look like from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from gpulayer.control.placing import waiting_reasons
from gpulayer.control.store import attempts, jobs, workers
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.rows import AttemptRow, JobRow, WorkerRow
from gpulayer.protocol import JobId, JobStatus, TaskStatus, WorkerList, WorkerStatus
from gpulayer.states import AttemptState, JobState


def job_status(connection: StoreConnection, now: float, job_id: JobId) -> JobStatus:
    """One job's record.

    Raises:
        UnknownJob: there is none with this id.
    """
    return job_statuses(connection, now, [jobs.job_row(connection, job_id)])[0]


def job_statuses(
    connection: StoreConnection, now: float, rows: Iterable[JobRow], known_tasks: Mapping[JobId, Sequence[AttemptRow]] | None = None
) -> list[JobStatus]:
    """The records of these jobs; `known_tasks` are newest attempts that need not be read."""
    names: dict[str, WorkerRow] = {}
    why_waiting: Callable[[JobRow], str] | None = None
    found: list[JobStatus] = []
    for row in rows:
        tasks = (known_tasks or {}).get(row.id)
        if tasks is None:
            tasks = attempts.newest_attempts(connection, row.id)
        for task in tasks:
            if task.worker_id not in names:
                names[task.worker_id] = workers.worker_row(connection, task.worker_id)
        waiting_for = None
        if row.state == JobState.QUEUED.value:
            if any(task.attempt == row.attempt for task in tasks):
                waiting_for = _starting(tasks, names)
            else:
                why_waiting = why_waiting or waiting_reasons(connection, now)
                waiting_for = why_waiting(row)
        found.append(
            JobStatus(
                job_id=row.id,
                name=row.name,
                owner=row.owner,
                spec=jobs.spec_of(row),
                state=JobState(row.state),
                revision=row.revision,
                attempt=row.attempt,
                accelerator=row.accelerator,
                created_at=row.created_at,
                started_at=row.started_at,
                ended_at=row.ended_at,
                waiting_for=waiting_for,
                cancel_requested=row.stop is not None,
                failure=jobs.failure_of(row),
                tasks=tuple(_task_status(task, names[task.worker_id]) for task in tasks),
            )
        )
    return found


def worker_list(connection: StoreConnection, now: float, *, heard: frozenset[str] = frozenset(), include_gone: bool = False) -> WorkerList:
    """Workers in the order of their registration; `heard` are the boots that speak to the control plane that asks."""
    held = attempts.held_devices(connection)
    rows = workers.all_workers(connection, include_gone=include_gone)
    statuses = [_worker_status(row, held.get(row.id, {}), now, is_heard=row.boot in heard) for row in rows]
    return WorkerList(workers=tuple(status for status in statuses if include_gone or status.state != workers.GONE))


def _task_status(row: AttemptRow, worker: WorkerRow) -> TaskStatus:
    return TaskStatus(
        node=row.node,
        state=AttemptState(row.state),
        attempt=row.attempt,
        worker_id=row.worker_id,
        worker=worker.name,
        host=worker.host,
        placed_at=row.placed_at,
        devices=tuple(device.id for device in attempts.devices_of(row)),
        ranks=attempts.ranks_of(row),
        outputs=attempts.outputs_of(row),
    )


def _worker_status(row: WorkerRow, held: dict[str, JobId], now: float, *, is_heard: bool) -> WorkerStatus:
    # Silent and idle, it is left out of every placement; silent and busy, its lease decides, which may be another's to judge.
    is_away = workers.is_silent(row, now) and not held
    state: Literal["alive", "draining", "gone"] = workers.GONE if is_away else row.state
    return WorkerStatus(
        worker_id=row.id,
        name=row.name,
        host=row.host,
        state=state,
        local=bool(row.local) and is_heard,  # one that a dead process started is no reason not to start another
        devices=workers.devices_of(row),
        devices_held=held,
        frameworks=workers.frameworks_of(row),
        python=row.python,
        version=row.version,
        registered_at=row.registered_at,
        last_seen_at=row.last_seen_at,
    )


def _starting(tasks: Sequence[AttemptRow], names: dict[str, WorkerRow]) -> str:
    return "starting on " + ", ".join(dict.fromkeys(names[task.worker_id].name for task in tasks))
