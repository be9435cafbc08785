"""Ships one attempt's metrics to the control plane, from a thread that there is once a rank has logged any."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec

from gpulayer.errors import AttemptLost, GPUlayerError, Interrupted
from gpulayer.protocol import MOST_POINTS_OF_A_BATCH, MOST_VALUES_OF_A_BATCH, MetricBatch, MetricPoint
from gpulayer.runtime.task_plan import Records
from gpulayer.settings import LOG_FLUSH_SECONDS
from gpulayer.worker.attempt_sender import AttemptSender

METRICS = "metrics"
"""The kind of the records that are metrics."""
MOST_WAITING = 200_000
"""Points that wait while the control plane is away, some 100 MB; then the oldest go, and how many is told."""

_log = logging.getLogger(__name__)


class MetricSender(AttemptSender):
    """Takes points and sends them in order, every 250 ms or 500 points.

    Args:
        send: hands a batch to the control plane, trying until it is answered; may block.
        node: for the batches.
        attempt: for the batches.
        on_lost: as for every `AttemptSender`.
        tell: likewise.
    """

    def __init__(
        self,
        send: Callable[[MetricBatch], None],
        *,
        node: int,
        attempt: int,
        on_lost: Callable[[GPUlayerError], None],
        tell: Callable[[str], None],
    ) -> None:
        super().__init__("metrics", missing="Metrics are missing", on_lost=on_lost, tell=tell)
        self._send = send
        self._node = node
        self._attempt = attempt
        self._waiting: deque[MetricPoint] = deque()
        self._lost = 0  # not yet told with a batch
        self._lost_in: dict[int, int] = {}  # rank → what was counted of its own losses
        self._number = 0

    def add(self, rank: int, records: Records, lost: int) -> None:
        """Take in what a rank told; what is no metric is somebody else's. Does not wait for the network.

        Args:
            rank: which.
            records: as the rank's process sent them.
            lost: how many that process dropped so far. Of several processes of a rank the most counts.
        """
        points = [point for kind, at, data in records if kind == METRICS and (point := self._read(rank, at, data)) is not None]
        refused = sum(kind == METRICS for kind, _, _ in records) - len(points)
        with self._changed:
            lost = max(0, lost - self._lost_in.get(rank, 0))
            if self._abandoned or self._closing or not (points or refused or lost):
                return
            self._lost_in[rank] = self._lost_in.get(rank, 0) + lost
            had_none = not self._waiting
            self._waiting.extend(points)
            dropped = max(0, len(self._waiting) - MOST_WAITING)
            for _ in range(dropped):
                self._waiting.popleft()
            self._lost += dropped + refused + lost
            if had_none or self._is_due():
                self._wake()
        if lost:
            self._tell_missing("a rank logged faster than they could be sent.")
        if dropped:
            self._tell_missing("the control plane was away for too long.")
        if refused:
            self._tell_missing("a process of the job sent what are none.")

    def _read(self, rank: int, at: float, data: dict[str, Any]) -> MetricPoint | None:
        said_at = data.get("at", at)  # what had to be read from a device was said before it was put into a record
        try:
            time_ = round(self._epoch + said_at, 3)
            return msgspec.convert((rank, data.get("step"), time_, data.get("values")), MetricPoint)
        except (msgspec.ValidationError, TypeError):
            return None

    def _is_due(self) -> bool:
        return self._closing or len(self._waiting) >= MOST_POINTS_OF_A_BATCH

    def _ship_next(self) -> bool:
        batch = self._next_batch()
        if batch is None:
            return False
        try:
            self._send(batch)
        except (Interrupted, AttemptLost):
            raise
        except GPUlayerError as refused:
            _log.error("a batch of metrics was refused: %s", refused)
            with self._changed:
                self._lost += len(batch.points) + batch.lost
                if self._closing and not self._waiting:
                    self._lost = 0  # nothing is sent any more that could tell
            self._tell_missing(f"the control plane refused them: {refused}")
        return True

    def _next_batch(self) -> MetricBatch | None:
        """Wait for points that are due; None when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._abandoned or self._closing or self._waiting or self._lost)
            if not self._abandoned:
                self._changed.wait_for(lambda: self._abandoned or self._is_due(), timeout=LOG_FLUSH_SECONDS)
            if self._abandoned or not (self._waiting or self._lost):
                return None
            points = self._take()
            self._number += 1
            lost, self._lost = self._lost, 0
        return MetricBatch(attempt=self._attempt, node=self._node, number=self._number, points=points, lost=lost)

    def _take(self) -> tuple[MetricPoint, ...]:
        """The oldest points that are within the limits of a batch; one at least."""
        count = values = 0
        for point in islice(self._waiting, MOST_POINTS_OF_A_BATCH):
            values += len(point.values)
            if count and values > MOST_VALUES_OF_A_BATCH:
                break
            count += 1
        return tuple(self._waiting.popleft() for _ in range(count))
