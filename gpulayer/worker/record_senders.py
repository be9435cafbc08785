"""What an attempt's ranks tell beside their output, sorted by kind: metrics, displays, progress. Runs in the agent."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from gpulayer.errors import GPUlayerError
from gpulayer.protocol import TaskAssignment
from gpulayer.runtime.task_plan import Records
from gpulayer.worker.attempt_calls import AttemptCalls
from gpulayer.worker.display_sender import DisplaySender
from gpulayer.worker.metric_sender import MetricSender
from gpulayer.worker.progress_sender import ProgressSender


class RecordSenders:
    """The senders of one attempt.

    Args:
        calls: of the attempt.
        assignment: of the attempt.
        displays: the folder into which its processes put what they display.
        on_lost: called when the control plane says that the attempt is over.
        tell: told what is missing and why, in words for the job's log.
    """

    def __init__(
        self,
        calls: AttemptCalls,
        assignment: TaskAssignment,
        displays: Path,
        *,
        on_lost: Callable[[GPUlayerError], None],
        tell: Callable[[str], None],
    ) -> None:
        attempt = assignment.attempt
        self._metrics = MetricSender(calls.append_metrics, node=assignment.node, attempt=attempt, on_lost=on_lost, tell=tell)
        self._displays = DisplaySender(calls.append_displays, calls.put_artifact, displays, attempt=attempt, on_lost=on_lost, tell=tell)
        self._progress = ProgressSender(calls.report_progress, on_lost=on_lost, tell=tell)

    def add(self, rank: int, records: Records, lost: int) -> None:
        """Take in what a rank told; see `MetricSender.add`."""
        self._metrics.add(rank, records, lost)
        if rank == 0:
            self._displays.add(records)
            self._progress.add(records)

    def close(self, wait: float | None = None) -> None:
        """Take nothing more and send what is left, for `wait` seconds at most (None: no limit)."""
        until = None if wait is None else time.monotonic() + wait
        for sender in (self._metrics, self._displays, self._progress):
            sender.close(None if until is None else max(0.0, until - time.monotonic()))

    def abandon(self) -> None:
        """Drop what is left."""
        for sender in (self._metrics, self._displays, self._progress):
            sender.abandon()
