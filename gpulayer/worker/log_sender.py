"""Ships one attempt's output to the control plane from a thread of its own; reading never waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from gpulayer.errors import GPUlayerError, Interrupted
from gpulayer.protocol import LogChunk, Stream
from gpulayer.settings import LOG_BATCH_LINES, LOG_FLUSH_SECONDS
from gpulayer.worker.log_backlog import MEMORY_BYTES, LogBacklog
from gpulayer.worker.server_link import PASSING, Retries

BATCH_BYTES = 1024 * 1024
"""One request's worth of output: some 1.4 MB as JSON."""
EAGER_BYTES = 256 * 1024
"""This much is sent without waiting for the flush interval to pass."""
REST_BYTES = 64 * 1024
"""So much of an attempt's last output may travel with the word of its end."""

_log = logging.getLogger(__name__)


class LogSender:
    """Takes output and sends it in order, every 250 ms, 500 lines or 256 KB, whichever comes first.

    While the server is away, what is read goes on to be held in memory up to a bound and in a file behind that; a batch that
    was not answered is sent again unchanged, so its offsets name the same bytes.

    Its thread begins with `start`, and with the word that the process runs. For a process that ended before that, `close`
    does without a thread where little is left.

    Args:
        send: hands a batch to the control plane; may block.
        tell_start: tells the control plane that the process runs; may block.
        node: for the chunks.
        attempt: for the chunks.
        spool: path of the overflow file.
        on_lost: called once, from the sender's thread, when the control plane refuses the attempt's output for good.
        on_fault: called once, from whichever thread meets it, when output had to be dropped on this machine.
        clock: UTC seconds, stamped on chunks.
        memory_bytes: how much is held in memory.
        flush_seconds: how long output waits for more of it.
    """

    def __init__(
        self,
        send: Callable[[tuple[LogChunk, ...]], None],
        *,
        tell_start: Callable[[], None],
        node: int,
        attempt: int,
        spool: Path,
        on_lost: Callable[[GPUlayerError], None],
        on_fault: Callable[[Exception], None],
        clock: Callable[[], float] = time.time,
        memory_bytes: int = MEMORY_BYTES,
        flush_seconds: float = LOG_FLUSH_SECONDS,
    ) -> None:
        self._send = send
        self._tell_start = tell_start
        self._on_lost = on_lost
        self._on_fault = on_fault
        self._flush_seconds = flush_seconds
        self._backlog = LogBacklog(node=node, attempt=attempt, spool=spool, memory_bytes=memory_bytes, clock=clock)
        self._changed = threading.Condition()
        self._closing = False
        self._abandoned = False
        self._ended = False
        self._is_fault_told = False
        self._rest_bytes = 0
        self._rest: tuple[LogChunk, ...] = ()
        self._thread = threading.Thread(target=self._run, name=f"gpulayer-logs-{spool.parent.name}", daemon=True)

    def start(self) -> None:
        """The process runs and is no short one: say so, and ship what comes."""
        self._thread.start()

    def add(self, rank: int | None, stream: Stream, data: bytes) -> None:
        """Take in what was read. Does not wait for the network."""
        with self._changed:
            if self._abandoned:
                return
            was_pending = self._backlog.pending_bytes > 0
            self._backlog.add(rank, stream, data)
            if not was_pending or self._is_due():
                self._changed.notify_all()
        self._tell_fault()

    def close(self, wait: float | None = None, *, rest_bytes: int = 0) -> bool:
        """Take nothing more, send what is left and end; True when that was done within `wait` seconds (None: no limit).

        A remainder of up to `rest_bytes` is not sent but kept for `rest`.
        """
        with self._changed:
            self._closing = True
            self._rest_bytes = rest_bytes
            if self._thread.ident is None:
                self._backlog.seal()
                if self._abandoned or self._keep_rest():
                    self._end()
                else:
                    self._thread.start()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended, timeout=wait)
            is_done = self._ended and not self._abandoned
        self._tell_fault()
        return is_done

    @property
    def rest(self) -> tuple[LogChunk, ...]:
        """What `close` kept back."""
        return self._rest

    def abandon(self) -> None:
        """Drop what is left; the thread ends once a request under way is answered."""
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()

    def memory_bytes(self) -> int:
        """What the backlog holds in memory at this moment, the batch under way apart."""
        with self._changed:
            return self._backlog.memory_bytes

    def _is_due(self) -> bool:
        return self._closing or self._backlog.pending_lines >= LOG_BATCH_LINES or self._backlog.pending_bytes >= EAGER_BYTES

    def _run(self) -> None:
        try:
            if not self._closing:
                self._tell_start()
            while (batch := self._next_batch()) and self._deliver(batch):
                pass
        except Exception as error:  # noqa: BLE001 - the top of this thread: whoever owns the attempt must not take it for sent
            _log.exception("an attempt's output can't be sent any more")
            self.abandon()
            self._tell_fault(error)
        finally:
            with self._changed:
                self._end()

    def _end(self) -> None:
        self._backlog.close()
        self._ended = True
        self._changed.notify_all()

    def _keep_rest(self) -> bool:
        """Keep what is left back, where it is as little as that."""
        if self._backlog.memory_bytes > self._rest_bytes or self._backlog.is_spooled:
            return False
        self._rest = self._backlog.take(BATCH_BYTES)
        return True

    def _next_batch(self) -> tuple[LogChunk, ...]:
        """Wait for output that is due; nothing when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._abandoned or self._closing or not self._backlog.is_empty)
            if self._abandoned:
                return ()
            # Behind in sending, the sender doesn't wait for more to send.
            if self._backlog.pending_bytes and not self._backlog.has_sealed:
                self._changed.wait_for(lambda: self._abandoned or self._is_due(), timeout=self._flush_seconds)
            self._backlog.seal()
            batch = () if self._closing and self._keep_rest() else self._backlog.take(BATCH_BYTES)
        self._tell_fault()
        return batch

    def _tell_fault(self, error: Exception | None = None) -> None:
        """Outside the lock: who is told may ask for something here."""
        with self._changed:
            error = error or self._backlog.fault
            if error is None or self._is_fault_told:
                return
            self._is_fault_told = True
        self._on_fault(error)

    def _deliver(self, batch: tuple[LogChunk, ...]) -> bool:
        retries = Retries()
        while not self._abandoned:
            try:
                self._send(batch)
            except (*PASSING, Interrupted) as error:
                _log.info("output waits for the control plane: %s", error)
                self._pause(retries.next_pause(error))
            except GPUlayerError as error:
                self.abandon()
                self._on_lost(error)
            else:
                return True
        return False

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._abandoned, timeout=seconds)
