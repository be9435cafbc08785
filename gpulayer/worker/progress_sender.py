"""Ships how far an attempt's rank 0 says the job is: about one word a second, and the last one always. Runs in the agent."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from gpulayer.errors import AttemptLost, GPUlayerError, Interrupted
from gpulayer.protocol import Progress
from gpulayer.runtime.task_plan import Records

PROGRESS = "progress"
"""The kind of the records that say it."""
REST_SECONDS = 1.0
"""Each word is a change of the job's record, which its watchers are woken for."""

_log = logging.getLogger(__name__)


class ProgressSender:
    """Keeps the last word, and sends it from a thread that there is once there is one.

    Args:
        send: hands it to the control plane, trying until it is answered; may block.
        on_lost: called once, from that thread, when the control plane says that the attempt is over.
    """

    def __init__(self, send: Callable[[Progress], None], *, on_lost: Callable[[GPUlayerError], None]) -> None:
        self._send = send
        self._on_lost = on_lost
        self._changed = threading.Condition()
        self._latest: Progress | None = None
        self._closing = False
        self._abandoned = False
        self._thread: threading.Thread | None = None
        self._epoch = time.time() - time.monotonic()

    def add(self, records: Records) -> None:
        """Take in what rank 0 told; what is about something else is somebody else's."""
        said = [self._read(at, data) for kind, at, data in records if kind == PROGRESS]
        if not said or said[-1] is None:
            return
        with self._changed:
            if self._abandoned or self._closing:
                return
            self._latest = said[-1]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gpulayer-progress", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, wait: float | None = None) -> bool:
        """Send the last word; True when it was delivered within `wait` seconds (None: no limit)."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(wait)
        return not self._abandoned and (thread is None or not thread.is_alive())

    def abandon(self) -> None:
        """Drop the last word; the thread ends once a request under way is answered."""
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()

    def _read(self, at: float, data: dict[str, Any]) -> Progress | None:
        try:
            return msgspec.convert({**data, "time": round(self._epoch + at, 3)}, Progress)
        except (msgspec.ValidationError, TypeError):
            return None

    def _run(self) -> None:
        try:
            while (progress := self._take()) is not None:
                self._deliver(progress)
                with self._changed:
                    self._changed.wait_for(lambda: self._abandoned or self._closing, timeout=REST_SECONDS)
        except Exception:  # noqa: BLE001 - the top of this thread: the job goes on, and nobody hears how far it is
            _log.exception("an attempt's progress can't be sent any more")
            self.abandon()

    def _take(self) -> Progress | None:
        with self._changed:
            self._changed.wait_for(lambda: self._abandoned or self._closing or self._latest is not None)
            latest, self._latest = self._latest, None
            return None if self._abandoned else latest

    def _deliver(self, progress: Progress) -> None:
        try:
            self._send(progress)
        except Interrupted:
            self.abandon()
        except AttemptLost as error:
            self.abandon()
            self._on_lost(error)
        except GPUlayerError as refused:
            _log.error("an attempt's progress was refused: %s", refused)
