"""Jobs in the store: made once, moved only from the state that a move leaves, read whole.

Every function runs inside the caller's transaction.
"""

from __future__ import annotations

import secrets
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, exists, func, select

from gpulayer.control.store import changes
from gpulayer.control.store.tables import attempts, jobs
from gpulayer.errors import Conflict, UnknownJob
from gpulayer.protocol import Digest, Failure, InputFile, JobId
from gpulayer.spec import AnyJob, node_count
from gpulayer.states import JobState, is_legal

JobRow = Row[Any]

_spec_decoder = msgspec.json.Decoder(AnyJob)
_inputs_decoder = msgspec.json.Decoder(dict[str, InputFile])
_failure_decoder = msgspec.json.Decoder(Failure)


def job_topic(job_id: JobId) -> str:
    """Changes of this job's record."""
    return f"job/{job_id}"


def insert_job(
    connection: Connection,
    now: float,
    *,
    spec: AnyJob,
    name: str,
    owner: str,
    idempotency_key: str,
    request_digest: str,
    source: Digest | None,
    inputs: dict[str, InputFile],
    accelerator: str | None,
) -> JobId:
    """Store a job as queued."""
    job_id = JobId("j" + secrets.token_hex(6))
    connection.execute(
        jobs.insert().values(
            id=job_id,
            name=name,
            owner=owner,
            idempotency_key=idempotency_key,
            request_digest=request_digest,
            spec=msgspec.json.encode(spec),
            source=source,
            inputs=msgspec.json.encode(inputs),
            nodes=node_count(spec),
            devices=spec.devices,
            accelerator=accelerator,
            state=JobState.QUEUED.value,
            revision=1,
            attempt=1,
            log_sequence=0,
            created_at=now,
        )
    )
    changes.emit(connection, job_topic(job_id))
    return job_id


def job_row(connection: Connection, job_id: JobId) -> JobRow:
    """The stored job.

    Raises:
        UnknownJob: there is none with this id.
    """
    row = connection.execute(select(jobs).where(jobs.c.id == job_id)).one_or_none()
    if row is None:
        raise UnknownJob("There is no such job.", asked=f"job {job_id}", fix="`gpulayer jobs` lists them.")
    return row


def job_by_key(connection: Connection, owner: str, idempotency_key: str) -> JobRow | None:
    """The job that was made under this idempotency key."""
    return connection.execute(select(jobs).where(jobs.c.owner == owner, jobs.c.idempotency_key == idempotency_key)).one_or_none()


def newest_jobs(connection: Connection, *, state: JobState | None, limit: int, before: int | None) -> list[JobRow]:
    """Jobs, newest first, with a sequence below `before`."""
    query = select(jobs).order_by(jobs.c.sequence.desc()).limit(limit)
    if state is not None:
        query = query.where(jobs.c.state == state.value)
    if before is not None:
        query = query.where(jobs.c.sequence < before)
    return list(connection.execute(query))


def unplaced_jobs(connection: Connection) -> list[JobRow]:
    """Queued jobs whose present attempt is not placed, in the order of submission."""
    placed = exists().where(attempts.c.job_id == jobs.c.id, attempts.c.attempt == jobs.c.attempt)
    query = select(jobs).where(jobs.c.state == JobState.QUEUED.value, jobs.c.stop.is_(None), ~placed).order_by(jobs.c.sequence)
    return list(connection.execute(query))


def count_unfinished(connection: Connection) -> int:
    """How many jobs wait or run."""
    waiting = (JobState.QUEUED.value, JobState.RUNNING.value)
    return int(connection.execute(select(func.count()).select_from(jobs).where(jobs.c.state.in_(waiting))).scalar_one())


def change_job(connection: Connection, job_id: JobId, **values: Any) -> None:
    """Change fields other than the state; counts as a revision."""
    connection.execute(jobs.update().where(jobs.c.id == job_id).values(revision=jobs.c.revision + 1, **values))
    changes.emit(connection, job_topic(job_id))


def move_job(connection: Connection, job_id: JobId, leaves: JobState, reaches: JobState, *, of_attempt: int, **values: Any) -> None:
    """Make one legal move, only from the state and attempt that it leaves.

    Raises:
        Conflict: the job is in another state or attempt.
    """
    assert is_legal(leaves, reaches), f"{leaves} → {reaches} is not in the table of moves"
    result = connection.execute(
        jobs.update()
        .where(jobs.c.id == job_id, jobs.c.state == leaves.value, jobs.c.attempt == of_attempt)
        .values(state=reaches.value, revision=jobs.c.revision + 1, **values)
    )
    if result.rowcount != 1:
        raise Conflict("The job has moved on.", asked=f"{job_id}, attempt {of_attempt}: {leaves} → {reaches}")
    changes.emit(connection, job_topic(job_id))


def spec_of(row: JobRow) -> AnyJob:
    """The job's spec, decoded."""
    return _spec_decoder.decode(row.spec)


def inputs_of(row: JobRow) -> dict[str, InputFile]:
    """The job's inputs, decoded."""
    return _inputs_decoder.decode(row.inputs)


def failure_of(row: JobRow) -> Failure | None:
    """The first failure of the present attempt, decoded."""
    return None if row.failure is None else _failure_decoder.decode(row.failure)
