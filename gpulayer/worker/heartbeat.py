"""Tells the control plane every few seconds that a busy worker is alive, and hears which of its attempts are lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from gpulayer.errors import GPUlayerError
from gpulayer.protocol import AttemptRef, HeartbeatReply
from gpulayer.worker.server_link import PASSING

_log = logging.getLogger(__name__)


class HeartbeatLoop:
    """One thread; quiet while nothing runs, since an idle worker's held acquire is heartbeat enough.

    Args:
        beat: makes the call.
        running: what is under way at this moment.
        on_lost: told about every attempt that is lost.
        on_refused: told when the control plane refuses the worker itself.
        on_silence: told after a beat that nobody answered.
        every_seconds: the pause between two beats.
    """

    def __init__(
        self,
        *,
        beat: Callable[[tuple[AttemptRef, ...]], HeartbeatReply],
        running: Callable[[], tuple[AttemptRef, ...]],
        on_lost: Callable[[AttemptRef], None],
        on_refused: Callable[[GPUlayerError], None],
        on_silence: Callable[[], None],
        every_seconds: float,
    ) -> None:
        self._beat = beat
        self._running = running
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._on_silence = on_silence
        self._every_seconds = every_seconds
        self._changed = threading.Condition()
        self._wanted = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="gpulayer-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def work_changed(self) -> None:
        """Something was started or has ended: decide anew whether to beat."""
        with self._changed:
            self._wanted = bool(self._running())
            self._changed.notify_all()

    def stop(self) -> None:
        """End the thread; it is not waited for, since a beat may be under way."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or self._wanted)
                # The first beat comes after a pause too: acquire and start have just been heard.
                self._changed.wait_for(lambda: self._stopped or not self._wanted, timeout=self._every_seconds)
                if self._stopped:
                    return
                if not self._wanted:
                    continue
            self._beat_once()

    def _beat_once(self) -> None:
        try:
            self._exchange()
        except Exception:  # noqa: BLE001 - the top of this thread: a worker that falls silent loses all its jobs
            _log.exception("a heartbeat has failed; the next one is due as ever")

    def _exchange(self) -> None:
        try:
            reply = self._beat(self._running())
        except PASSING as error:
            _log.info("a heartbeat was not answered: %s", error)
            self._on_silence()
        except GPUlayerError as error:
            self._on_refused(error)
        else:
            for attempt in reply.lost:
                self._on_lost(attempt)
