"""What one subscription of a stream has to tell next: read from the store behind its cursor, which moves with what was read.

Sockets and polls are the server's (`stream_calls.py` has the poll): they watch a follower's topics, and read it when one of them
is signalled. Runs in the control plane's loop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import msgspec

from gpulayer.control.clock import Clock
from gpulayer.control.statuses import job_statuses
from gpulayer.control.store import jobs, logs, metrics
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.database import Database
from gpulayer.control.store.workers import WORKERS_TOPIC
from gpulayer.protocol import FollowJob, FollowLogs, FollowMetrics, JobFrame, JobStatus, LogPage, LogsFrame, MetricsFrame, StreamFrame
from gpulayer.states import JobState

T = TypeVar("T")

ANY_JOB_TOPIC = "jobs"
"""Signalled with every topic of a job; never stored."""
REASONS_SECONDS = 1.0
"""How often a subscription looks whether jobs wait for something else than before: that costs a look at the whole fleet."""
LONGEST_TAIL_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 200
"""What a chunk's fields but its data take as JSON, at the most."""


class Follower(ABC):
    """One subscription.

    Attributes:
        topics: what wakes it; they may change with a read.
        is_over: there will never be more.
        look_again_seconds: when to read again at the latest, though no topic was signalled.
    """

    topics: tuple[str, ...]
    is_over = False
    look_again_seconds: float | None = None

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    @abstractmethod
    async def read(self, number: int, *, limit_bytes: int) -> StreamFrame | None:
        """What has come since the last read, of about so many bytes at most; None where there is nothing.

        Raises:
            UnknownJob: there is none with this id.
        """

    async def _read(self, question: Callable[[StoreConnection], T]) -> T:
        return await self._database.read(question)


class ReasonsTimer:
    """Lets the fleet be looked at once in `REASONS_SECONDS`, and says when the next time is."""

    def __init__(self) -> None:
        self._next = 0.0

    def is_due(self) -> bool:
        """Whether to look; then the time until the next look begins."""
        now = asyncio.get_running_loop().time()
        if now < self._next:
            return False
        self._next = now + REASONS_SECONDS
        return True

    def left_seconds(self) -> float:
        return max(self._next - asyncio.get_running_loop().time(), 0.001)


class JobFollower(Follower):
    """A job's record.

    Args:
        tells_reason_at_first: the first read gives the record of a waiting job also where it is not newer: since its tab saw
            it, it may wait for something else, which is no revision.
    """

    def __init__(self, database: Database, clock: Clock, to: FollowJob, *, tells_reason_at_first: bool) -> None:
        super().__init__(database, clock)
        self._job_id = to.job_id
        self._revision = to.after_revision
        self._waits_for: tuple[object, ...] | None = () if tells_reason_at_first else None
        self._reasons = ReasonsTimer()
        self.topics = (jobs.job_topic(self._job_id),)

    async def read(self, number: int, *, limit_bytes: int) -> StreamFrame | None:  # noqa: ARG002 - a record is one, whatever its size
        looks_at_reason = self._reasons.is_due()

        def question(c: StoreConnection) -> tuple[bool, JobStatus | None]:
            row = jobs.job_row(c, self._job_id)
            waits = row.state == JobState.QUEUED.value
            is_newer = self._revision is None or row.revision > self._revision
            return waits, job_statuses(c, self._clock.now(), [row])[0] if is_newer or (waits and looks_at_reason) else None

        waits, status = await self._read(question)
        topic = jobs.job_topic(self._job_id)
        self.topics = (topic, ANY_JOB_TOPIC, WORKERS_TOPIC) if waits else (topic,)
        self.look_again_seconds = self._reasons.left_seconds() if waits and not looks_at_reason else None
        if status is None:
            return None
        waits_for = (status.waiting_for, status.waiting)
        before, self._waits_for = self._waits_for, waits_for
        if status.revision == self._revision and (before is None or before == waits_for):
            return None
        self._revision = status.revision
        return JobFrame(id=number, status=status)


class LogsFollower(Follower):
    """A job's output."""

    def __init__(self, database: Database, clock: Clock, to: FollowLogs) -> None:
        super().__init__(database, clock)
        self._job_id = to.job_id
        self._rank = to.rank
        self._after = to.after
        self._tail_bytes = to.tail_bytes if to.after == 0 else None
        self.topics = (logs.logs_topic(self._job_id),)

    async def read(self, number: int, *, limit_bytes: int) -> StreamFrame | None:
        def question(c: StoreConnection) -> LogPage:
            after = self._after
            if self._tail_bytes is not None:
                tail_bytes = min(self._tail_bytes, LONGEST_TAIL_BYTES)
                after = logs.start_of_tail(c, self._job_id, rank=self._rank, tail_bytes=tail_bytes)
            return logs.read_page(c, self._job_id, rank=self._rank, after=after, limit_bytes=limit_bytes * 3 // 4)

        page = _cut(await self._read(question), limit_bytes)
        self._after, self._tail_bytes = page.next, None
        self.is_over = page.complete
        return LogsFrame(id=number, page=page) if page.chunks or page.complete else None


class MetricsFollower(Follower):
    """A job's metrics."""

    def __init__(self, database: Database, clock: Clock, to: FollowMetrics) -> None:
        super().__init__(database, clock)
        self._job_id = to.job_id
        self._after = to.after
        # The job's own topic as well: it tells of the end.
        self.topics = (metrics.metrics_topic(self._job_id), jobs.job_topic(self._job_id))

    async def read(self, number: int, *, limit_bytes: int) -> StreamFrame | None:
        more = True
        while more:
            page, more = await self._read(
                lambda c: metrics.read_page(c, self._job_id, rank=None, name=None, after=self._after, limit_bytes=limit_bytes)
            )
            self._after = page.next
            more = more and not page.batches  # batches of which nothing was kept
        self.is_over = page.complete
        return MetricsFrame(id=number, page=page) if page.batches or page.complete else None


def _cut(page: LogPage, limit_bytes: int) -> LogPage:
    """The page, or as much of it as its JSON may take: short chunks take more than their bytes."""
    size_bytes = 0
    for count, chunk in enumerate(page.chunks):
        size_bytes += (len(chunk.data) + 2) // 3 * 4 + _CHUNK_BYTES
        if count and size_bytes > limit_bytes:
            chunks = page.chunks[:count]
            return msgspec.structs.replace(page, chunks=chunks, next=chunks[-1].sequence, complete=False)
    return page
