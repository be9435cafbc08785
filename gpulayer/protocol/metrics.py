"""A job's metrics as they travel: the batches that workers send and clients read."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gpulayer.protocol.attempts import TaskMessage
from gpulayer.protocol.message import JobId, Message

MOST_VALUES_OF_A_POINT = 500
"""A rank's message of a thousand such points, with names of `LONGEST_METRIC_NAME`, still fits in one frame of its channel."""
LONGEST_METRIC_NAME = 100
MOST_POINTS_OF_A_BATCH = 500
MOST_VALUES_OF_A_BATCH = 5_000
"""Some 150 KB of JSON; a point that has more than that by itself never comes (`MOST_VALUES_OF_A_POINT`)."""
RESERVED_METRIC_NAMES = frozenset({"attempt", "rank", "step", "time"})
"""The columns that a table of metrics has besides."""

MetricValue = float | Literal["nan", "inf", "-inf"]
"""JSON has no word for the last three; `float()` reads them all."""
MetricName = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_METRIC_NAME)]


class MetricPoint(Message, frozen=True, kw_only=True, array_like=True):
    """What one call of `gpulayer.log` said: an array of four in JSON, since there are many."""

    rank: int
    step: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None
    time: float  # UTC seconds by the worker's clock, of when the rank said it
    values: Annotated[dict[MetricName, MetricValue], msgspec.Meta(max_length=MOST_VALUES_OF_A_POINT)]


class MetricBatch(Message, frozen=True, kw_only=True):
    """Points of the ranks of one node, in the order in which each said them."""

    attempt: int
    node: int
    number: int  # counted from 1 by the worker, for each attempt and node: one that comes again is stored once
    points: tuple[MetricPoint, ...]
    lost: int = 0  # points that were dropped before they could be sent, since the batch before
    sequence: int = 0  # assigned by the control plane, per job; the reading cursor


class AppendMetrics(TaskMessage, frozen=True, kw_only=True):
    batch: MetricBatch


class ReadMetrics(Message, frozen=True, kw_only=True):
    """Batches with a sequence over `after`, oldest first; held up to `wait` seconds while there are none and more may come.

    With `rank` or `name`, points of that rank and values of that name only.
    """

    job_id: JobId
    rank: int | None = None
    name: str | None = None
    after: int = 0
    wait: float = 0.0


class MetricPage(Message, frozen=True, kw_only=True):
    """`received` and `kept` count the points of the whole job so far: where they differ, the job was thinned out (docs: Jobs)."""

    batches: tuple[MetricBatch, ...]
    next: int  # the cursor to go on from
    complete: bool  # the job is terminal and nothing lies behind `next`
    received: int = 0
    kept: int = 0
    lost: int = 0  # points that never reached the control plane, as far as is known
