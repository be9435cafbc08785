"""Log chunks in the store: one row a chunk, stored once however often it is sent, read by the job's own sequence.

Every function runs inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import bindparam, func, select, text
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from gpulayer.control.store import changes
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.jobs import job_row
from gpulayer.control.store.rows import AttemptRow
from gpulayer.control.store.statements import Query, Statement
from gpulayer.control.store.tables import jobs, logs
from gpulayer.errors import InvalidSpec, TooLarge
from gpulayer.protocol import JobId, LogChunk, LogPage, Stream
from gpulayer.settings import LOG_CHUNK_BYTES
from gpulayer.states import JobState

NO_RANK = -1
"""Stands for `rank=None` in the table, where NULLs would never be equal and a resend would be stored twice."""
PAGE_ROWS = 1000
"""Bounds a page of very short chunks, which hardly count by their bytes."""


class _LogRow(NamedTuple):
    job_id: str
    sequence: int
    node: int
    attempt: int
    rank: int
    stream: Stream
    offset: int
    first_line: int
    time: float
    data: bytes


_page = (
    select(logs)
    .where(logs.c.job_id == bindparam("job_id"), logs.c.sequence > bindparam("after"))
    .order_by(logs.c.sequence)
    .limit(PAGE_ROWS + 1)
)
# Said to be rare, else SQLite reads all ranks' rows by the primary key rather than one rank's by its index.
_of_rank = func.likelihood(logs.c.rank == bindparam("of_rank"), text("0.001"))
_PAGE = Query(_page, _LogRow._make)
_PAGE_OF_RANK = Query(_page.where(_of_rank), _LogRow._make)
_is_earlier = (logs.c.job_id == bindparam("job_id"), logs.c.sequence < bindparam("before"))
_earlier = select(logs).where(*_is_earlier).order_by(logs.c.sequence.desc()).limit(PAGE_ROWS)
_EARLIER = Query(_earlier, _LogRow._make)
_EARLIER_OF_RANK = Query(_earlier.where(_of_rank), _LogRow._make)
# Of a blob its length is read without the blob.
_sizes = select(logs.c.sequence, func.length(logs.c.data)).where(logs.c.job_id == bindparam("job_id")).order_by(logs.c.sequence.desc())
_SIZES_FROM_END = Query(_sizes, tuple)
_SIZES_OF_RANK_FROM_END = Query(_sizes.where(_of_rank), tuple)
_SEQUENCE = Query(select(jobs.c.log_sequence).where(jobs.c.id == bindparam("job_id")), lambda row: int(next(iter(row))))
_KEEP_SEQUENCE = Statement(jobs.update().where(jobs.c.id == bindparam("job_id")).values(log_sequence=bindparam("newest")))
_INSERT = Statement(
    sqlite_insert(logs)
    .values({column.name: bindparam(column.name) for column in logs.c})
    .on_conflict_do_nothing(index_elements=["job_id", "attempt", "node", "rank", "stream", "offset"])
)


def logs_topic(job_id: JobId) -> str:
    """More output of this job, or the end of it."""
    return f"logs/{job_id}"


def append(connection: StoreConnection, row: AttemptRow, chunks: Sequence[LogChunk]) -> None:
    """Store the chunks of a live attempt that are not stored yet, in the order given.

    Raises:
        TooLarge: a chunk over the limit.
        InvalidSpec: a chunk of another attempt or node.
    """
    first = sequence = _SEQUENCE.first(connection, job_id=row.job_id) or 0
    for chunk in chunks:
        _check(row, chunk)
        sequence += _INSERT.run(
            connection,
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
    if sequence != first:
        _KEEP_SEQUENCE.run(connection, job_id=row.job_id, newest=sequence)
        changes.emit(connection, logs_topic(row.job_id))


def read_page(connection: StoreConnection, job_id: JobId, *, rank: int | None, after: int, limit_bytes: int) -> LogPage:
    """Chunks behind a cursor, oldest first; at least one, where there is one, whatever the limit.

    Raises:
        UnknownJob: there is none with this id.
    """
    job = job_row(connection, job_id)
    if rank is None:
        found = _PAGE.each(connection, job_id=job_id, after=after)
    else:
        found = _PAGE_OF_RANK.each(connection, job_id=job_id, after=after, of_rank=rank)
    chunks: list[LogChunk] = []
    size_bytes = 0
    more = False
    for row in found:
        if chunks and (size_bytes + len(row.data) > limit_bytes or len(chunks) == PAGE_ROWS):
            more = True
            break
        size_bytes += len(row.data)
        chunks.append(_chunk(row))
    # Without more behind them, other ranks' chunks are passed over too, so that a filtered reader does not scan them again.
    following = chunks[-1].sequence if more else max(int(job.log_sequence), after)
    return LogPage(chunks=tuple(chunks), next=following, complete=JobState(job.state).is_terminal and not more)


def read_earlier(connection: StoreConnection, job_id: JobId, *, rank: int | None, before: int, limit_bytes: int) -> LogPage:
    """The chunks that end before a sequence, oldest first; at least one, where there is one. `next` goes on at that sequence.

    Raises:
        UnknownJob: there is none with this id.
    """
    job_row(connection, job_id)
    if rank is None:
        found = _EARLIER.each(connection, job_id=job_id, before=before)
    else:
        found = _EARLIER_OF_RANK.each(connection, job_id=job_id, before=before, of_rank=rank)
    chunks: list[LogChunk] = []
    size_bytes = 0
    for row in found:
        size_bytes += len(row.data)
        if chunks and size_bytes > limit_bytes:
            break
        chunks.append(_chunk(row))
    return LogPage(chunks=tuple(reversed(chunks)), next=max(before - 1, 0), complete=False)


def start_of_tail(connection: StoreConnection, job_id: JobId, *, rank: int | None, tail_bytes: int) -> int:
    """The cursor behind which about the last `tail_bytes` of the output lie: whole chunks, as few as hold them."""
    if rank is None:
        found = _SIZES_FROM_END.each(connection, job_id=job_id)
    else:
        found = _SIZES_OF_RANK_FROM_END.each(connection, job_id=job_id, of_rank=rank)
    size_bytes = 0
    for sequence, chunk_bytes in found:
        size_bytes += chunk_bytes
        if size_bytes >= tail_bytes:
            return int(sequence) - 1
    return 0


def _chunk(row: _LogRow) -> LogChunk:
    return LogChunk(
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


def _check(row: AttemptRow, chunk: LogChunk) -> None:
    if len(chunk.data) > LOG_CHUNK_BYTES:
        raise TooLarge("A log chunk is over its limit.", asked=f"{len(chunk.data)} bytes", found=f"limit {LOG_CHUNK_BYTES} bytes")
    if (chunk.attempt, chunk.node) != (row.attempt, row.node):
        raise InvalidSpec(
            "A log chunk belongs to another attempt than its request.",
            asked=f"node {chunk.node}, attempt {chunk.attempt}",
            found=f"node {row.node}, attempt {row.attempt}",
        )
