"""Rows as the messages that clients see: what a job and a worker look like from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal

from gpulayer.control.local_start import missing_local_workers
from gpulayer.control.placing import waiting_reasons
from gpulayer.control.scheduler.feasible import Reason
from gpulayer.control.store import attempts, jobs, workers
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.rows import AttemptRow, JobRow, WorkerRow
from gpulayer.protocol import JobId, JobStatus, JobSummary, TaskStatus, Waiting, WorkerId, WorkerList, WorkerStatus
from gpulayer.states import AttemptState, JobState

LINE_CHARACTERS = 300
"""Of a reason or a failure in a list."""


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
    names = _Workers(connection)
    queue = _Queue(connection, now)
    found: list[JobStatus] = []
    for row in rows:
        tasks = (known_tasks or {}).get(row.id)
        if tasks is None:
            tasks = attempts.newest_attempts(connection, row.id)
        reason = queue.why_waiting(row, tasks, names) if row.state == JobState.QUEUED.value else None
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
                waiting_for=None if reason is None else reason.words,
                waiting=None if reason is None else queue.waiting(row, reason),
                cancel_requested=row.stop is not None,
                failure=jobs.failure_of(row),
                progress=jobs.progress_of(row),
                tasks=tuple(_task_status(task, names[task.worker_id]) for task in tasks),
            )
        )
    return found


def job_summaries(connection: StoreConnection, now: float, rows: Iterable[JobRow]) -> list[JobSummary]:
    """What lists show of these jobs; of those that have left the queue nothing but their row is read."""
    names = _Workers(connection)
    queue = _Queue(connection, now)
    found: list[JobSummary] = []
    for row in rows:
        reason = None
        if row.state == JobState.QUEUED.value:
            reason = queue.why_waiting(row, attempts.newest_attempts(connection, row.id), names)
        failure = jobs.failure_of(row)
        found.append(
            JobSummary(
                job_id=row.id,
                name=row.name,
                owner=row.owner,
                state=JobState(row.state),
                revision=row.revision,
                nodes=row.nodes,
                devices=row.devices,
                accelerator=row.accelerator,
                created_at=row.created_at,
                started_at=row.started_at,
                ended_at=row.ended_at,
                waiting_for=None if reason is None else _one_line(reason.words),
                cancel_requested=row.stop is not None,
                failure=None if failure is None else _one_line(failure.message),
                progress=jobs.progress_of(row),
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
        environment=attempts.environment_of(row),
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


class _Workers(dict[WorkerId, WorkerRow]):
    """Workers by id, each read once."""

    def __init__(self, connection: StoreConnection) -> None:
        super().__init__()
        self._connection = connection

    def __missing__(self, worker_id: WorkerId) -> WorkerRow:
        row = self[worker_id] = workers.worker_row(self._connection, worker_id)
        return row


class _Queue:
    """Why queued jobs wait; what is asked of the fleet is read when the first one does."""

    def __init__(self, connection: StoreConnection, now: float) -> None:
        self._connection = connection
        self._now = now

    def why_waiting(self, row: JobRow, tasks: Sequence[AttemptRow], names: _Workers) -> Reason:
        if any(task.attempt == row.attempt for task in tasks):
            where = ", ".join(dict.fromkeys(names[task.worker_id].name for task in tasks))
            return Reason("starting", f"starting on {where}" + (", which may have its requirements to install" if row.requirements else ""))
        return self._reasons(row)

    def waiting(self, row: JobRow, reason: Reason) -> Waiting:
        """The reason as programs read it."""
        missing = 0 if reason.code in ("starting", "busy") else missing_local_workers(self._connection, self._now, row)
        return Waiting(reason=reason.code, local_workers=missing, cpu_devices=row.devices if missing else None)

    @cached_property
    def _reasons(self) -> Callable[[JobRow], Reason]:
        return waiting_reasons(self._connection, self._now)


def _one_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= LINE_CHARACTERS else line[: LINE_CHARACTERS - 1] + "…"
