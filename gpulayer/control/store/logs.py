"""Log chunks in the store: one row a chunk, stored once however often it is sent, read by the job's own sequence.

Every function runs inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from gpulayer.control.store import changes
from gpulayer.control.store.attempts import AttemptRow
from gpulayer.control.store.jobs import job_row
from gpulayer.control.store.tables import jobs, logs
from gpulayer.errors import InvalidSpec, TooLarge
from gpulayer.protocol import JobId, LogChunk, LogPage
from gpulayer.settings import LOG_CHUNK_BYTES
from gpulayer.states import JobState

NO_RANK = -1
"""Stands for `rank=None` in the table, where NULLs would never be equal and a resend would be stored twice."""
PAGE_ROWS = 1000
"""Bounds a page of very short chunks, which hardly count by their bytes."""


def logs_topic(job_id: JobId) -> str:
    """More output of this job, or the end of it."""
    return f"logs/{job_id}"


def append(connection: Connection, row: AttemptRow, chunks: Sequence[LogChunk]) -> None:
    """Store the chunks of a live attempt that are not stored yet, in the order given.

    Raises:
        TooLarge: a chunk over the limit.
        InvalidSpec: a chunk of another attempt or node.
    """
    first = sequence = int(connection.execute(select(jobs.c.log_sequence).where(jobs.c.id == row.job_id)).scalar_one())
    for chunk in chunks:
        _check(row, chunk)
        result = connection.execute(
            sqlite_insert(logs)
            .values(
                job_id=row.job_id,
                sequence=sequence + 1,
                node=row.node,
                attempt=row.attempt,
                rank=NO_RANK if chunk.rank is None else chunk.rank,
                stream=chunk.stream,
                offset=chunk.offset,
                first_line=chunk.first_line,
                time=chunk.time,
                data=chunk.data,
            )
            .on_conflict_do_nothing(index_elements=["job_id", "attempt", "node", "rank", "stream", "offset"])
        )
        sequence += result.rowcount
    if sequence != first:
        connection.execute(jobs.update().where(jobs.c.id == row.job_id).values(log_sequence=sequence))
        changes.emit(connection, logs_topic(row.job_id))


def read_page(connection: Connection, job_id: JobId, *, rank: int | None, after: int, limit_bytes: int) -> LogPage:
    """Chunks behind a cursor, oldest first; at least one, where there is one, whatever the limit.

    Raises:
        UnknownJob: there is none with this id.
    """
    job = job_row(connection, job_id)
    query = select(logs).where(logs.c.job_id == job_id, logs.c.sequence > after).order_by(logs.c.sequence).limit(PAGE_ROWS + 1)
    if rank is not None:
        query = query.where(logs.c.rank == rank)
    chunks: list[LogChunk] = []
    size_bytes = 0
    more = False
    for row in connection.execute(query):
        if chunks and (size_bytes + len(row.data) > limit_bytes or len(chunks) == PAGE_ROWS):
            more = True
            break
        size_bytes += len(row.data)
        chunks.append(
            LogChunk(
                attempt=row.attempt,
                node=row.node,
                rank=None if row.rank == NO_RANK else row.rank,
                stream=row.stream,
                offset=row.offset,
                first_line=row.first_line,
                time=row.time,
                data=row.data,
                sequence=row.sequence,
            )
        )
    # Without more behind them, other ranks' chunks are passed over too, so that a filtered reader does not scan them again.
    following = chunks[-1].sequence if more else max(int(job.log_sequence), after)
    return LogPage(chunks=tuple(chunks), next=following, complete=JobState(job.state).is_terminal and not more)


def _check(row: AttemptRow, chunk: LogChunk) -> None:
    if len(chunk.data) > LOG_CHUNK_BYTES:
        raise TooLarge("A log chunk is over its limit.", asked=f"{len(chunk.data)} bytes", found=f"limit {LOG_CHUNK_BYTES} bytes")
    if (chunk.attempt, chunk.node) != (row.attempt, row.node):
        raise InvalidSpec(
            "A log chunk belongs to another attempt than its request.",
            asked=f"node {chunk.node}, attempt {chunk.attempt}",
            found=f"node {row.node}, attempt {row.attempt}",
        )
