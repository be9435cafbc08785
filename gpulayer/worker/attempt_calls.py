"""What a worker says of one attempt, as calls that are tried until they are answered; how it begins, what it prints and logs.

The end is `task_runner`'s own, and where ranks meet `meeting`'s.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

from gpulayer.errors import AttemptLost, GPUlayerError, Interrupted
from gpulayer.protocol import (
    AppendDisplays,
    AppendLogs,
    AppendMetrics,
    Digest,
    Display,
    Failure,
    LogChunk,
    Message,
    MetricBatch,
    Progress,
    ReportFailure,
    ReportProgress,
    StartTask,
)
from gpulayer.worker.server_link import ServerLink

REPORT_SECONDS = 1.0
"""How long the report of a first failure may hold up the stopping of its siblings; the finish carries it again."""

_log = logging.getLogger(__name__)


class AttemptCalls:
    """The calls of one attempt; all but `report_failure` block until they are answered.

    Args:
        link: to the control plane.
        fields: those of a `TaskMessage`.
        give_up: ends every wait.
    """

    def __init__(self, link: ServerLink, fields: dict[str, Any], give_up: threading.Event) -> None:
        self._link = link
        self.fields = fields
        self.give_up = give_up

    def start(self) -> None:
        """Its process runs."""
        self.call("start_task", StartTask(**self.fields))

    def append_logs(self, chunks: tuple[LogChunk, ...]) -> None:
        self.call("append_logs", AppendLogs(chunks=chunks, **self.fields))

    def append_rest(self, chunks: tuple[LogChunk, ...]) -> None:
        """The last of its output, which is no reason to fail where it is refused."""
        try:
            if chunks:
                self.append_logs(chunks)
        except (AttemptLost, Interrupted):
            raise
        except GPUlayerError as refused:
            _log.error("task %s: its last output was refused: %s", self.fields["task_id"], refused)

    def append_metrics(self, batch: MetricBatch) -> None:
        self.call("append_metrics", AppendMetrics(batch=batch, **self.fields))

    def append_displays(self, displays: tuple[Display, ...]) -> None:
        self.call("append_displays", AppendDisplays(displays=displays, **self.fields))

    def put_artifact(self, file: Path, sha256: Digest) -> None:
        """Store a file's bytes under their digest."""
        self._link.patiently(lambda: self._link.put_artifact(file, sha256), self.give_up)

    def report_progress(self, progress: Progress) -> None:
        self.call("report_progress", ReportProgress(progress=progress, **self.fields))

    def report_failure(self, failure: Failure) -> None:
        """A rank has failed: tried once, and not for long."""
        try:
            self._link.call("report_failure", ReportFailure(failure=failure, **self.fields), timeout=REPORT_SECONDS)
        except GPUlayerError as error:
            _log.warning("the first failure could not be reported at once; the finish will: %s", error)

    def call(self, name: str, request: Message, give_up: threading.Event | None = None) -> Any:
        """One call by its name, repeated while the control plane is away, or until another `give_up` than the attempt's is set.

        Raises:
            Interrupted: the attempt gives up.
            GPUlayerError: what it was refused with.
        """
        return self._link.patiently(lambda: self._link.call(name, request), give_up or self.give_up)
