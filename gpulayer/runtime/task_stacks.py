"""Collects what a task's ranks are doing when they are to be stopped. Runs in the agent.

What a rank wrote is read on the event thread; `task_process` asks, and waits for the answers.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable

from gpulayer.runtime.event_thread import EventThread
from gpulayer.runtime.process_tree import catches_signal
from gpulayer.runtime.stack_signal import STACK_SIGNAL
from gpulayer.runtime.task_processes import TaskProcesses
from gpulayer.runtime.task_ranks import LocalRank

_READ_BYTES = 64 * 1024
_MOST_BYTES = 256 * 1024


class StackDumps:
    """The pipes into which ranks write their stacks.

    Args:
        events: the thread that reads them.
        on_answer: called from there when the last rank that was asked has begun to answer, and with all that comes after.
    """

    def __init__(self, events: EventThread, on_answer: Callable[[], None]) -> None:
        self._events = events
        self._on_answer = on_answer
        self._lock = threading.RLock()  # held while a pipe is read from, as in `output.py`
        self._pipes: dict[int, int] = {}
        self._dumps: dict[int, bytearray] = {}
        self._asked: set[int] = set()
        self._is_closed = False

    def add(self, rank: int, reader: int) -> None:
        """Read a rank's stacks from this pipe; it is closed here."""
        os.set_blocking(reader, False)
        with self._lock:
            if rank in self._pipes or self._is_closed:
                os.close(reader)
                return
            self._pipes[rank] = reader
            self._events.add(reader, lambda: self._read(rank))

    def ask(self, processes: TaskProcesses, ranks: Iterable[LocalRank]) -> bool:
        """Ask ranks what they are doing; False where none can say."""
        if STACK_SIGNAL is None:
            return False
        # One whose script put another program in its place would die of the signal.
        able = [rank for rank in ranks if rank.pid is not None and rank.rank in self._pipes and catches_signal(rank.pid, STACK_SIGNAL)]
        with self._lock:
            self._asked = {rank.rank for rank in able}
        for rank in able:
            assert rank.pid is not None
            processes.signal(rank.pid, STACK_SIGNAL)
        return bool(able)

    def of(self, rank: int) -> bytes:
        """What a rank has written; nothing where it was not asked."""
        with self._lock:
            return bytes(self._dumps.get(rank, b""))

    def close(self) -> None:
        """Take what is still in the pipes, and close them."""
        with self._lock:
            self._is_closed = True
            for rank in list(self._pipes):
                while self._read(rank):
                    pass
                self._close(rank)

    def _read(self, rank: int) -> bool:
        with self._lock:
            reader = self._pipes.get(rank)
            if reader is None:
                return False
            data = b""
            try:
                data = os.read(reader, _READ_BYTES)
            except BlockingIOError:
                return False
            except OSError:
                pass  # as good as its end
            if not data:
                self._close(rank)
                return False
            dump = self._dumps.setdefault(rank, bytearray())
            dump += data[: max(0, _MOST_BYTES - len(dump))]
            self._asked.discard(rank)
            is_last = not self._asked
        if is_last:
            self._on_answer()
        return True

    def _close(self, rank: int) -> None:
        reader = self._pipes.pop(rank, None)
        if reader is not None:
            self._events.remove(reader)
            with contextlib.suppress(OSError):
                os.close(reader)
