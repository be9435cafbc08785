"""Ships how far an attempt's rank 0 says the job is: about one word a second, and the last one always. Runs in the agent."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from gpulayer.errors import AttemptLost, GPUlayerError, Interrupted
from gpulayer.protocol import Progress
from gpulayer.runtime.task_plan import Records
from gpulayer.worker.attempt_sender import AttemptSender

PROGRESS = "progress"
"""The kind of the records that say it."""
REST_SECONDS = 1.0
"""Each word is a change of the job's record, which its watchers are woken for."""

_log = logging.getLogger(__name__)


class ProgressSender(AttemptSender):
    """Keeps the last word, and sends it.

    Args:
        send: hands it to the control plane, trying until it is answered; may block.
        on_lost: as for every `AttemptSender`.
        tell: likewise.
    """

    def __init__(self, send: Callable[[Progress], None], *, on_lost: Callable[[GPUlayerError], None], tell: Callable[[str], None]) -> None:
        super().__init__("progress", missing="How far the job is is not told", on_lost=on_lost, tell=tell)
        self._send = send
        self._latest: Progress | None = None

    def add(self, records: Records) -> None:
        """Take in what rank 0 told; what is about something else is somebody else's."""
        said = [self._read(at, data) for kind, at, data in records if kind == PROGRESS]
        if not said or said[-1] is None:
            return
        with self._changed:
            if self._abandoned or self._closing:
                return
            self._latest = said[-1]
            self._wake()

    def _read(self, at: float, data: dict[str, Any]) -> Progress | None:
        try:
            progress = msgspec.convert({**data, "time": round(self._epoch + at, 3)}, Progress)
            msgspec.json.encode(progress)
        except (msgspec.ValidationError, TypeError, UnicodeEncodeError):
            return None
        return progress

    def _ship_next(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._abandoned or self._closing or self._latest is not None)
            progress, self._latest = self._latest, None
            if self._abandoned or progress is None:
                return False
        try:
            self._send(progress)
        except (Interrupted, AttemptLost):
            raise
        except GPUlayerError as refused:
            _log.error("an attempt's progress was refused: %s", refused)
        with self._changed:
            self._changed.wait_for(lambda: self._abandoned or self._closing, timeout=REST_SECONDS)
        return True
