"""Rows as the store reads them: plain named tuples with the columns of their table, and the queries by which they are found."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from sqlalchemy import bindparam, exists, func, select

from gpulayer.control.store.statements import Query
from gpulayer.control.store.tables import attempts, jobs, reservations, workers
from gpulayer.protocol import Digest, JobId, StopReason, WorkerId
from gpulayer.states import JobState


class JobRow(NamedTuple):
    sequence: int
    id: JobId
    name: str
    owner: str
    idempotency_key: str
    request_digest: str
    spec: bytes
    source: Digest | None
    inputs: bytes
    nodes: int
    devices: int
    accelerator: str | None
    requires: bytes
    state: str
    revision: int
    attempt: int
    stop: str | None
    failure: bytes | None
    log_sequence: int
    created_at: float
    started_at: float | None
    ended_at: float | None
    progress: bytes | None
    requirements: Digest | None


class AttemptRow(NamedTuple):
    job_id: JobId
    node: int
    attempt: int
    worker_id: WorkerId
    boot: str
    state: str
    stop: StopReason | None
    devices: bytes
    ranks: bytes | None
    outputs: bytes | None
    placed_at: float
    confirmed_at: float | None
    started_at: float | None
    ended_at: float | None
    environment: bytes | None


class WorkerRow(NamedTuple):
    id: WorkerId
    boot: str
    name: str
    owner: str
    host: str
    boot_id: str
    address: str
    python: str
    version: str
    protocol: int
    devices: bytes
    frameworks: bytes
    local: int
    state: Literal["alive", "draining", "gone"]
    renewals: int
    registered_at: float
    last_seen_at: float


class WaitingJob(NamedTuple):
    """A queued job whose present attempt is not placed."""

    sequence: int
    id: JobId
    attempt: int
    nodes: int
    devices: int
    accelerator: str | None
    requires: bytes


class Reservation(NamedTuple):
    worker_id: WorkerId
    device_id: str
    job_id: JobId


GONE: Final = "gone"
"""The state of a worker that left or was lost."""

_of_job = attempts.c.job_id == bindparam("job_id")
_in_attempt = attempts.c.attempt == bindparam("attempt")
_newest = select(func.max(attempts.c.attempt)).where(_of_job).scalar_subquery()
_is_placed = exists().where(attempts.c.job_id == jobs.c.id, attempts.c.attempt == jobs.c.attempt)

JOB = Query(select(jobs).where(jobs.c.id == bindparam("job_id")), JobRow._make)
JOB_OF_KEY = Query(
    select(jobs).where(jobs.c.owner == bindparam("owner"), jobs.c.idempotency_key == bindparam("idempotency_key")), JobRow._make
)
_is_waiting = (jobs.c.ended_at.is_(None), jobs.c.state == JobState.QUEUED.value, jobs.c.stop.is_(None), ~_is_placed)
WAITING_JOBS = Query(select(*(jobs.c[name] for name in WaitingJob._fields)).where(*_is_waiting).order_by(jobs.c.sequence), WaitingJob._make)
ATTEMPT = Query(select(attempts).where(_of_job, attempts.c.node == bindparam("node"), _in_attempt), AttemptRow._make)
ATTEMPTS_OF_JOB = Query(select(attempts).where(_of_job, _in_attempt).order_by(attempts.c.node), AttemptRow._make)
NEWEST_ATTEMPTS = Query(select(attempts).where(_of_job, attempts.c.attempt == _newest).order_by(attempts.c.node), AttemptRow._make)
LIVE_ATTEMPTS = Query(
    select(attempts)
    .where(attempts.c.worker_id == bindparam("worker_id"), attempts.c.ended_at.is_(None))
    .order_by(attempts.c.placed_at, attempts.c.job_id, attempts.c.node),
    AttemptRow._make,
)
RESERVATIONS = Query(select(*(reservations.c[name] for name in Reservation._fields)), Reservation._make)
WORKER = Query(select(workers).where(workers.c.id == bindparam("worker_id")), WorkerRow._make)
WORKERS = Query(select(workers).order_by(workers.c.registered_at, workers.c.id), WorkerRow._make)
PRESENT_WORKERS = Query(select(workers).where(workers.c.state != GONE).order_by(workers.c.registered_at, workers.c.id), WorkerRow._make)
