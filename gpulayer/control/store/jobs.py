"""Jobs in the store: made once, moved only from the state that a move leaves, read whole.

Every function runs inside the caller's transaction.
"""

from __future__ import annotations

import secrets
from functools import cache, lru_cache
from typing import Any

import msgspec
from sqlalchemy import bindparam, func, select

from gpulayer.control.store import changes, rows
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.memory import memory_to_follow
from gpulayer.control.store.rows import JobRow, WaitingJob
from gpulayer.control.store.statements import Statement
from gpulayer.control.store.tables import jobs
from gpulayer.errors import Conflict, UnknownJob
from gpulayer.protocol import Digest, Failure, InputFile, JobId, Progress
from gpulayer.spec import AnyJob
from gpulayer.states import JobState, is_legal

_inputs_decoder = msgspec.json.Decoder(dict[str, InputFile])
_failure_decoder = msgspec.json.Decoder(Failure)
_progress_decoder = msgspec.json.Decoder(Progress)
_spec_decoder = msgspec.json.Decoder(AnyJob)
_requires_decoder = msgspec.json.Decoder(frozenset[str])

_INSERT = Statement(jobs.insert().values({name: bindparam(name) for name in JobRow._fields if name != "sequence"}))

_RUN = Statement(
    jobs.update()
    .where(jobs.c.id == bindparam("job_id"), jobs.c.state == JobState.QUEUED.value, jobs.c.attempt == bindparam("of_attempt"))
    .values(state=JobState.RUNNING.value, revision=jobs.c.revision + 1, started_at=bindparam("now"))
)


def job_topic(job_id: JobId) -> str:
    """Changes of this job's record."""
    return f"job/{job_id}"


def insert_job(
    connection: StoreConnection,
    now: float,
    *,
    name: str,
    owner: str,
    idempotency_key: str,
    request_digest: str,
    spec: bytes,
    source: Digest | None,
    inputs: bytes,
    nodes: int,
    devices: int,
    accelerator: str | None,
    requires: bytes,
    requirements: Digest | None = None,
) -> JobRow:
    """Store a job as queued."""
    job = JobRow(
        sequence=0,
        id=JobId("j" + secrets.token_hex(6)),
        name=name,
        owner=owner,
        idempotency_key=idempotency_key,
        request_digest=request_digest,
        spec=spec,
        source=source,
        inputs=inputs,
        nodes=nodes,
        devices=devices,
        accelerator=accelerator,
        requires=requires,
        state=JobState.QUEUED.value,
        revision=1,
        attempt=1,
        stop=None,
        failure=None,
        log_sequence=0,
        created_at=now,
        started_at=None,
        ended_at=None,
        progress=None,
        requirements=requirements,
    )
    job = job._replace(sequence=_INSERT.insert(connection, **job._asdict()))
    changes.emit(connection, job_topic(job.id))
    _follow_queue(connection, job)
    return job


def job_row(connection: StoreConnection, job_id: JobId) -> JobRow:
    """The stored job.

    Raises:
        UnknownJob: there is none with this id.
    """
    row = rows.JOB.first(connection, job_id=job_id)
    if row is None:
        raise UnknownJob("There is no such job.", asked=f"job {job_id}", fix="`gpulayer jobs` lists them.")
    return row


def job_by_key(connection: StoreConnection, owner: str, idempotency_key: str) -> JobRow | None:
    """The job that was made under this idempotency key."""
    return rows.JOB_OF_KEY.first(connection, owner=owner, idempotency_key=idempotency_key)


def newest_jobs(connection: StoreConnection, *, state: JobState | None, limit: int, before: int | None) -> list[JobRow]:
    """Jobs, newest first, with a sequence below `before`."""
    query = select(jobs).order_by(jobs.c.sequence.desc()).limit(limit)
    if state is not None:
        query = query.where(jobs.c.state == state.value)
    if before is not None:
        query = query.where(jobs.c.sequence < before)
    return [JobRow._make(row) for row in connection.execute(query)]


def count_unfinished(connection: StoreConnection) -> int:
    """How many jobs wait or run."""
    return int(connection.execute(select(func.count()).select_from(jobs).where(jobs.c.ended_at.is_(None))).scalar_one())


def change_job(connection: StoreConnection, job_id: JobId, **values: Any) -> None:
    """Change fields other than the state; counts as a revision."""
    _change_statement(tuple(values)).run(connection, job_id=job_id, **{f"to_{name}": value for name, value in values.items()})
    changes.emit(connection, job_topic(job_id))
    if "stop" in values and (memory := memory_to_follow(connection)) is not None:
        memory.stop_waiting(job_id)


def move_job(connection: StoreConnection, job: JobRow, reaches: JobState, **values: Any) -> None:
    """Make one legal move, only from the state and attempt that this row has.

    Raises:
        Conflict: the job is in another state or attempt.
    """
    assert is_legal(JobState(job.state), reaches), f"{job.state} → {reaches} is not in the table of moves"
    statement = _move_statement(tuple(values))
    moved = statement.run(
        connection,
        job_id=job.id,
        leaves=job.state,
        of_attempt=job.attempt,
        to_state=reaches.value,
        **{f"to_{name}": value for name, value in values.items()},
    )
    if moved != 1:
        raise Conflict("The job has moved on.", asked=f"{job.id}, attempt {job.attempt}: {job.state} → {reaches}")
    changes.emit(connection, job_topic(job.id))
    _follow_queue(connection, job._replace(state=reaches.value, **values))


def run_job(connection: StoreConnection, now: float, job_id: JobId, *, of_attempt: int) -> None:
    """A process of this attempt runs: the first one makes the job run, each counts as a revision."""
    if _RUN.run(connection, job_id=job_id, of_attempt=of_attempt, now=now):
        changes.emit(connection, job_topic(job_id))  # it is placed, so it is in no queue
    else:
        change_job(connection, job_id)


@lru_cache(maxsize=512)
def decode_spec(encoded: bytes) -> AnyJob:
    """A stored spec; specs are values, so equal ones share an object."""
    return _spec_decoder.decode(encoded)


def spec_of(row: JobRow) -> AnyJob:
    """The job's spec, decoded."""
    return decode_spec(row.spec)


def inputs_of(row: JobRow) -> dict[str, InputFile]:
    """The job's inputs, decoded."""
    return _inputs_decoder.decode(row.inputs)


@lru_cache(maxsize=512)
def decode_requires(encoded: bytes) -> frozenset[str]:
    """What workers of this job have to report."""
    return _requires_decoder.decode(encoded)


def failure_of(row: JobRow) -> Failure | None:
    """The first failure of the present attempt, decoded."""
    return None if row.failure is None else _failure_decoder.decode(row.failure)


def progress_of(row: JobRow) -> Progress | None:
    """What rank 0 of the present attempt last said of it, decoded."""
    return None if row.progress is None else _progress_decoder.decode(row.progress)


def _follow_queue(connection: StoreConnection, job: JobRow) -> None:
    """A job that was made, or has moved, waits or does not; one that is placed stops waiting by `attempts.insert_attempt`."""
    memory = memory_to_follow(connection)
    if memory is None:
        return
    memory.stop_waiting(job.id)
    if job.state == JobState.QUEUED.value and job.stop is None:
        memory.wait(WaitingJob._make(getattr(job, name) for name in WaitingJob._fields))


@cache
def _change_statement(names: tuple[str, ...]) -> Statement:
    values: dict[str, Any] = {name: bindparam(f"to_{name}") for name in names}
    return Statement(jobs.update().where(jobs.c.id == bindparam("job_id")).values(revision=jobs.c.revision + 1, **values))


@cache
def _move_statement(names: tuple[str, ...]) -> Statement:
    guard = (jobs.c.id == bindparam("job_id"), jobs.c.state == bindparam("leaves"), jobs.c.attempt == bindparam("of_attempt"))
    values: dict[str, Any] = {name: bindparam(f"to_{name}") for name in names}
    return Statement(jobs.update().where(*guard).values(state=bindparam("to_state"), revision=jobs.c.revision + 1, **values))
