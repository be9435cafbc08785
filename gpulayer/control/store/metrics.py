"""Metrics in the store: one row a batch, stored once however often it is sent, read by the job's own sequence.

A job's first `KEPT_IN_FULL` values are all kept. After that it is thinned out, the more the longer it goes on: of n values in
all, of every n / `KEPT_IN_FULL` steps about one is kept, the same steps on all ranks; so a hundred times as many leave 5.6 times
as many. How many points came and how many were kept is told with every page. Every function runs inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import bindparam, select
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from gpulayer.control.store import changes
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.jobs import job_row
from gpulayer.control.store.rows import AttemptRow
from gpulayer.control.store.statements import Query, Statement
from gpulayer.control.store.tables import metric_totals, metrics
from gpulayer.errors import InvalidSpec, TooLarge
from gpulayer.protocol import (
    MOST_POINTS_OF_A_BATCH,
    MOST_VALUES_OF_A_BATCH,
    JobId,
    MetricBatch,
    MetricPage,
    MetricPoint,
)
from gpulayer.states import JobState

KEPT_IN_FULL = 2_000_000
"""Values of one job, over all ranks: some 60 MB of the home."""
PAGE_BYTES = 1024 * 1024
"""Stored bytes that are looked at for one page, whatever of them its reader asked for; decoded in some 10 ms of a reader's thread."""
PAGE_ROWS = 1000
_WORD = 2**64
_GOLDEN = 0x9E3779B97F4A7C15
"""2⁶⁴ over the golden ratio: multiples of it, and of its multiples, lie evenly in a circle of 2⁶⁴."""

_points_decoder = msgspec.json.Decoder(tuple[MetricPoint, ...])


class _BatchRow(NamedTuple):
    job_id: str
    sequence: int
    node: int
    attempt: int
    number: int
    points: bytes


class _Totals(NamedTuple):
    job_id: str
    sequence: int
    received_values: int
    received: int
    kept: int
    lost: int


_PAGE = Query(
    select(metrics)
    .where(metrics.c.job_id == bindparam("job_id"), metrics.c.sequence > bindparam("after"))
    .order_by(metrics.c.sequence)
    .limit(PAGE_ROWS + 1),
    _BatchRow._make,
)
_TOTALS = Query(select(metric_totals).where(metric_totals.c.job_id == bindparam("job_id")), _Totals._make)
_insert_totals = sqlite_insert(metric_totals).values({name: bindparam(name) for name in _Totals._fields})
_KEEP_TOTALS = Statement(
    _insert_totals.on_conflict_do_update(
        index_elements=["job_id"], set_={name: _insert_totals.excluded[name] for name in _Totals._fields if name != "job_id"}
    )
)
_INSERT = Statement(
    sqlite_insert(metrics)
    .values({column.name: bindparam(column.name) for column in metrics.c})
    .on_conflict_do_nothing(index_elements=["job_id", "attempt", "node", "number"])
)


def metrics_topic(job_id: JobId) -> str:
    """More metrics of this job."""
    return f"metrics/{job_id}"


def append(connection: StoreConnection, row: AttemptRow, batch: MetricBatch) -> None:
    """Store a batch of a live attempt, unless it is stored.

    Raises:
        TooLarge: more points or values than a batch may have.
        InvalidSpec: a batch of another attempt or node.
    """
    values = sum(len(point.values) for point in batch.points)
    _check(row, batch, values)
    totals = _totals_of(connection, row.job_id)
    kept = _thinned(batch.points, totals)
    is_new = _INSERT.run(
        connection,
        job_id=row.job_id,
        sequence=totals.sequence + 1,
        node=row.node,
        attempt=row.attempt,
        number=batch.number,
        points=msgspec.json.encode(kept),
    )
    if is_new:
        grown = _Totals(
            job_id=row.job_id,
            sequence=totals.sequence + 1,
            received_values=totals.received_values + values,
            received=totals.received + len(batch.points),
            kept=totals.kept + len(kept),
            lost=totals.lost + max(batch.lost, 0),
        )
        _KEEP_TOTALS.run(connection, **grown._asdict())
        changes.emit(connection, metrics_topic(row.job_id))


def read_page(
    connection: StoreConnection, job_id: JobId, *, rank: int | None, name: str | None, after: int, limit_bytes: int | None = None
) -> tuple[MetricPage, bool]:
    """Batches behind a cursor, oldest first, and whether there are more behind them; a page may be empty and have more behind it.

    Raises:
        UnknownJob: there is none with this id.
    """
    limit_bytes = PAGE_BYTES if limit_bytes is None else limit_bytes
    job = job_row(connection, job_id)
    totals = _totals_of(connection, job_id)
    batches: list[MetricBatch] = []
    size_bytes = 0
    following = max(totals.sequence, after)
    more = False
    for seen, row in enumerate(_PAGE.each(connection, job_id=job_id, after=after)):
        if seen and (size_bytes + len(row.points) > limit_bytes or seen == PAGE_ROWS):
            more = True
            following = row.sequence - 1
            break
        size_bytes += len(row.points)
        points = _asked_for(_points_decoder.decode(row.points), rank, name)
        if points:
            batches.append(MetricBatch(attempt=row.attempt, node=row.node, number=row.number, points=tuple(points), sequence=row.sequence))
    page = MetricPage(
        batches=tuple(batches),
        next=following,
        complete=JobState(job.state).is_terminal and not more,
        received=totals.received,
        kept=totals.kept,
        lost=totals.lost,
    )
    return page, more


def _totals_of(connection: StoreConnection, job_id: JobId) -> _Totals:
    return _TOTALS.first(connection, job_id=job_id) or _Totals(job_id, sequence=0, received_values=0, received=0, kept=0, lost=0)


def _thinned(points: Sequence[MetricPoint], totals: _Totals) -> Sequence[MetricPoint]:
    one_of = 1 + totals.received_values // KEPT_IN_FULL
    if one_of == 1:
        return points
    # A step is the same on every rank, and what is kept of many is among what is kept of fewer; one of each so many in a row would
    # keep all, or none, of a loop that logs each hundredth step.
    return [
        point
        for count, point in enumerate(points, start=totals.received)
        if (count if point.step is None else point.step) * _GOLDEN % _WORD * one_of < _WORD
    ]


def _asked_for(points: Sequence[MetricPoint], rank: int | None, name: str | None) -> Sequence[MetricPoint]:
    if rank is not None:
        points = [point for point in points if point.rank == rank]
    if name is not None:
        points = [msgspec.structs.replace(point, values={name: point.values[name]}) for point in points if name in point.values]
    return points


def _check(row: AttemptRow, batch: MetricBatch, values: int) -> None:
    if len(batch.points) > MOST_POINTS_OF_A_BATCH or values > MOST_VALUES_OF_A_BATCH:
        raise TooLarge(
            "A batch of metrics is over its limit.",
            asked=f"{len(batch.points)} points with {values} values",
            found=f"limit {MOST_POINTS_OF_A_BATCH} points and {MOST_VALUES_OF_A_BATCH} values",
        )
    if (batch.attempt, batch.node) != (row.attempt, row.node):
        raise InvalidSpec(
            "A batch of metrics belongs to another attempt than its request.",
            asked=f"node {batch.node}, attempt {batch.attempt}",
            found=f"node {row.node}, attempt {row.attempt}",
        )
