"""Ships one attempt's metrics to the control plane, from a thread that there is once a rank has logged any."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec

from gpulayer.errors import AttemptLost, GPUlayerError, Interrupted
from gpulayer.protocol import MOST_POINTS_OF_A_BATCH, MOST_VALUES_OF_A_BATCH, MetricBatch, MetricPoint
from gpulayer.runtime.task_plan import Records
from gpulayer.settings import LOG_FLUSH_SECONDS

METRICS = "metrics"
"""The kind of the records that are metrics."""
MOST_WAITING = 200_000
"""Points that wait while the control plane is away, some 100 MB; then the oldest go, and how many is told."""

_log = logging.getLogger(__name__)


class MetricSender:
    """Takes points and sends them in order, every 250 ms or 500 points.

    Args:
        send: hands a batch to the control plane, trying until it is answered; may block.
        node: for the batches.
        attempt: for the batches.
        on_lost: called once, from the sender's thread, when the control plane says that the attempt is over.
        tell: told once for each reason why points are missing, in words for the job's log; from whichever thread meets it.
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
        self._send = send
        self._node = node
        self._attempt = attempt
        self._on_lost = on_lost
        self._tell = tell
        self._told: set[str] = set()
        self._changed = threading.Condition()
        self._waiting: deque[MetricPoint] = deque()
        self._lost = 0  # not yet told with a batch
        self._lost_in: dict[int, int] = {}  # rank → what was counted of its own losses
        self._number = 0
        self._closing = False
        self._abandoned = False
        self._thread: threading.Thread | None = None
        # What ranks stamp is monotonic; one offset for the whole attempt keeps their order whatever the wall clock does.
        self._epoch = time.time() - time.monotonic()

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
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gpulayer-metrics", daemon=True)
                self._thread.start()
            elif had_none or self._is_due():
                self._changed.notify_all()
        if lost:
            self._tell_once("Metrics are missing: a rank logged faster than they could be sent.")
        if dropped:
            self._tell_once("Metrics are missing: the control plane was away for too long.")
        if refused:
            self._tell_once("Metrics are missing: a process of the job sent what are none.")

    def close(self, wait: float | None = None) -> bool:
        """Take nothing more and send what is left; True when all was delivered within `wait` seconds (None: no limit)."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(wait)
        return not self._abandoned and (thread is None or not thread.is_alive())

    def abandon(self) -> None:
        """Drop what is left; the thread ends once a request under way is answered."""
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()

    def _read(self, rank: int, at: float, data: dict[str, Any]) -> MetricPoint | None:
        said_at = data.get("at", at)  # what had to be read from a device was said before it was put into a record
        try:
            time_ = round(self._epoch + said_at, 3)
            return msgspec.convert((rank, data.get("step"), time_, data.get("values")), MetricPoint)
        except (msgspec.ValidationError, TypeError):
            return None

    def _is_due(self) -> bool:
        return self._closing or len(self._waiting) >= MOST_POINTS_OF_A_BATCH

    def _run(self) -> None:
        try:
            while (batch := self._next_batch()) is not None:
                self._deliver(batch)
        except Exception:  # noqa: BLE001 - the top of this thread: the job goes on without metrics, and its log says so
            _log.exception("an attempt's metrics can't be sent any more")
            self.abandon()
            self._tell_once("Metrics are missing: a fault of the worker, which its log names.")

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

    def _deliver(self, batch: MetricBatch) -> None:
        try:
            self._send(batch)
        except Interrupted:
            self.abandon()
        except AttemptLost as error:
            self.abandon()
            self._on_lost(error)
        except GPUlayerError as refused:
            # Metrics are no reason to end a job: what comes after these may be taken.
            _log.error("a batch of metrics was refused: %s", refused)
            with self._changed:
                self._lost += len(batch.points) + batch.lost
                if self._closing and not self._waiting:
                    self._lost = 0  # nothing is sent any more that could tell
            self._tell_once(f"Metrics are missing: the control plane refused them: {refused}")

    def _tell_once(self, text: str) -> None:
        with self._changed:
            if text in self._told:
                return
            self._told.add(text)
        self._tell(text)
