"""Reads what a task's processes print: one pipe per rank and stream, bytes as they come. Runs in the agent's event thread.

Nothing is split, decoded or merged here. Reading never waits for what takes the bytes (`on_output` must not block), so a
rank is never held up by the network.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable

from gpulayer.protocol import Stream
from gpulayer.runtime.event_thread import EventThread
from gpulayer.runtime.process_tree import IS_LINUX
from gpulayer.runtime.rank_stacks import told_crash

_log = logging.getLogger(__name__)

_READ_BYTES = 1024 * 1024
_PIPE_BYTES = 1024 * 1024  # the most that Linux grants without privileges; a rank that prints a lot is switched to less often
_F_SETPIPE_SZ = 1031
_TAIL_BYTES = 8192
_TAIL_LINES = 20

OnOutput = Callable[[int | None, Stream, bytes], None]


class OutputReader:
    """Hands every byte of every stream to `on_output(rank, stream, data)`, in order within a stream.

    Args:
        events: the thread that reads.
        on_output: takes the bytes.
        on_fault: called at most once, when it could not: bytes are dropped from there on, since a rank that nobody reads
            from would stand still.
    """

    def __init__(self, events: EventThread, on_output: OnOutput, on_fault: Callable[[Exception], None]) -> None:
        self._events = events
        self._on_output = on_output
        self._on_fault = on_fault
        self._is_dropping = False
        self._lock = threading.RLock()  # held while a pipe is read from, so that `finish` takes the rest in order
        self._pipes: dict[int, tuple[int | None, Stream]] = {}
        self._tails: dict[tuple[int | None, Stream], deque[bytes]] = {}
        self._finishing = False

    def open_pipe(self, rank: int | None, stream: Stream) -> int:
        """Make a pipe that is read from at once and return the end to write to, which the caller closes."""
        reader, writer = os.pipe()
        self.add(rank, stream, reader)
        return writer

    def add(self, rank: int | None, stream: Stream, reader: int) -> None:
        """Read from this pipe as well; it is closed here at its end."""
        os.set_blocking(reader, False)
        if IS_LINUX:
            import fcntl

            # Refused where the user's pipes hold too much already: then it stays at 64 KB.
            with contextlib.suppress(OSError):
                fcntl.fcntl(reader, _F_SETPIPE_SZ, _PIPE_BYTES)
        with self._lock:
            if self._finishing:
                os.close(reader)
                return
            self._tails.setdefault((rank, stream), deque())
            self._pipes[reader] = rank, stream
            self._events.add(reader, lambda: self._read(reader))

    def last_lines(self, rank: int | None) -> tuple[str, ...]:
        """The last lines of a rank's stderr, or of its stdout if it wrote nothing there."""
        streams: tuple[Stream, Stream] = ("stderr", "stdout")
        for stream in streams:
            with self._lock:
                data = b"".join(self._tails.get((rank, stream), ()))
            if lines := told_crash(data[-_TAIL_BYTES:].decode(errors="replace").splitlines()):
                return tuple(lines[-_TAIL_LINES:])
        return ()

    def finish(self) -> None:
        """Take what is still in the pipes and close them. Call it once nothing of the task is alive.

        It doesn't wait for the pipes' ends: a stranger that was handed one may hold it open for ever.
        """
        with self._lock:
            self._finishing = True
            for reader in list(self._pipes):
                while self._read(reader):
                    pass
                self._close(reader)

    def _hand_on(self, rank: int | None, stream: Stream, data: bytes) -> None:
        if self._is_dropping:
            return
        try:
            self._on_output(rank, stream, data)
        except Exception as error:  # noqa: BLE001 - whoever owns the task ends it, and reading goes on
            _log.exception("a task's output could not be taken in")
            self._is_dropping = True
            self._on_fault(error)

    def _read(self, reader: int) -> bool:
        """One read; False when there is nothing more to read at present, or ever."""
        with self._lock:
            if reader not in self._pipes:
                return False  # closed in the moment in which the event thread turned to it
            try:
                data = os.read(reader, _READ_BYTES)
            except BlockingIOError:
                return False
            except OSError as error:
                _log.warning("a stream of a task can't be read any further: %s", error)
                data = b""
            if not data:
                self._close(reader)
                return False
            rank, stream = self._pipes[reader]
            self._remember(rank, stream, data)
            self._hand_on(rank, stream, data)
            return True

    def _close(self, reader: int) -> None:
        if self._pipes.pop(reader, None) is not None:
            self._events.remove(reader)
            os.close(reader)

    def _remember(self, rank: int | None, stream: Stream, data: bytes) -> None:
        tail = self._tails[rank, stream]
        tail.append(data[-_TAIL_BYTES:])
        while len(tail) > 1 and sum(map(len, tail)) - len(tail[0]) >= _TAIL_BYTES:
            tail.popleft()
