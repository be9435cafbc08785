"""What a rank's code tells its agent beside what it prints: metrics, rich output, results. Runs in the rank.

A record is put into memory and sent from a thread of its own, some at a time, so that a training loop pays microseconds. A
process that the rank forks, or starts as another program, has a connection of its own and speaks for the same rank.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections import deque
from typing import Any

from gpulayer.runtime.frames import FrameSocket, connect
from gpulayer.runtime.rank_channel import CHANNEL, file_of

RANK = "GPULAYER_RANK"
"""Set by `rank_main`: which rank a process belongs to, whatever its own environment makes of RANK."""
_REST_SECONDS = 0.1
"""How long records are gathered before they are sent."""
_MOST_WAITING = 100_000
"""An agent that takes nothing in is not to cost the rank its memory: the oldest go first, and how many is told."""
_MOST_SENT = 1_000
_FLUSH_SECONDS = 5.0


class RankRecords:
    """The records of one process.

    Args:
        path: of the agent's channel.
        rank: the global rank that it speaks for.
    """

    def __init__(self, path: str, rank: int) -> None:
        self._path = path
        self._rank = rank
        self._pid = os.getpid()
        self._waiting: deque[tuple[str, float, dict[str, Any]]] = deque(maxlen=_MOST_WAITING)
        self._latest: dict[str, tuple[float, dict[str, Any]]] = {}
        self._lost = 0
        self._is_running = False
        self._has_some = threading.Event()
        self._gathering = threading.Event()  # never set: a pause
        self._sending = threading.Lock()
        self._frames: FrameSocket | None = None
        self._file: tuple[int, int] | None = None

    def add(self, kind: str, data: dict[str, Any]) -> None:
        """Have a record sent soon; `data` is plain, as JSON has it, and not changed afterwards."""
        if len(self._waiting) == _MOST_WAITING:
            self._lost += 1
        self._waiting.append((kind, time.monotonic(), data))
        if not self._has_some.is_set():
            self._wake()

    def put_latest(self, kind: str, data: dict[str, Any]) -> None:
        """Have this sent soon in the place of what waits of this kind: only the last word counts."""
        self._latest[kind] = (time.monotonic(), data)
        if not self._has_some.is_set():
            self._wake()

    def flush(self) -> None:
        """Send what waits, at the end of the process; an agent that takes nothing in is waited for a few seconds."""
        if self._is_running and os.getpid() == self._pid:
            self._send_all(_FLUSH_SECONDS)

    def _wake(self) -> None:
        if not self._is_running:
            self._is_running = True
            threading.Thread(target=self._run, name="gpulayer-records", daemon=True).start()
            atexit.register(self.flush)
            # What multiprocessing starts ends without exit handlers, but with these.
            if (multiprocessing := sys.modules.get("multiprocessing.util")) is not None:
                multiprocessing.Finalize(None, self.flush, exitpriority=0)
        self._has_some.set()

    def _run(self) -> None:
        while True:
            self._has_some.wait()
            self._gathering.wait(_REST_SECONDS)
            self._has_some.clear()
            if not self._send_all():
                return

    def _send_all(self, timeout: float | None = None) -> bool:
        """Send what waits; False where nobody takes it, or not in time."""
        if timeout is not None and self._frames is not None:
            with contextlib.suppress(OSError):
                self._frames.set_timeout(timeout)  # also for what the thread is sending
        if not self._sending.acquire(timeout=-1 if timeout is None else timeout):
            return False
        try:
            try:
                if self._frames is not None and file_of(self._frames) != self._file:
                    self._frames.forget()  # the script has closed all files that it did not open
                    self._frames = None
                if self._frames is None:
                    self._frames = connect(self._path)
                    self._file = file_of(self._frames)
                if timeout is not None:
                    self._frames.set_timeout(timeout)
                while records := self._take():
                    self._frames.send({"type": "records", "rank": self._rank, "lost": self._lost, "records": records})
            except OSError:
                return False
            return True
        finally:
            self._sending.release()

    def _take(self) -> list[tuple[str, float, dict[str, Any]]]:
        taken: list[tuple[str, float, dict[str, Any]]] = []
        with contextlib.suppress(IndexError):
            while len(taken) < _MOST_SENT:
                taken.append(self._waiting.popleft())
        with contextlib.suppress(KeyError):
            while True:
                kind, (at, data) = self._latest.popitem()
                taken.append((kind, at, data))
        return taken


_current: RankRecords | None = None


def records_of_process() -> RankRecords | None:
    """The records of this process; None where it belongs to no rank."""
    global _current
    if _current is None:
        path, rank = os.environ.get(CHANNEL), os.environ.get(RANK)
        if path is not None and rank is not None:
            _current = RankRecords(path, int(rank))
    return _current


def flush() -> None:
    """Send what waits in this process, so that it is there before what the rank says of its end."""
    if _current is not None:
        _current.flush()


def _forget() -> None:
    """In a forked process: the thread is gone, and the connection is the parent's."""
    global _current
    if _current is not None and _current._frames is not None:  # noqa: SLF001 - this module's own
        is_ours = file_of(_current._frames) == _current._file  # noqa: SLF001
        (_current._frames.close if is_ours else _current._frames.forget)()  # noqa: SLF001
    if _current is not None:
        atexit.unregister(_current.flush)
    _current = None


os.register_at_fork(after_in_child=_forget)
