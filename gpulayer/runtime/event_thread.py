"""One thread that waits for all files of an agent's runtime at once and calls what each was added with. Runs in the agent.

Keepers, the channels of tasks and the pipes of their output share it, so that a task costs no thread of its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import threading
from collections.abc import Callable
from typing import Protocol

_log = logging.getLogger(__name__)


class HasFileno(Protocol):
    """Whatever a selector takes beside a bare number."""

    def fileno(self) -> int: ...


class EventThread:
    """Calls handlers when their files can be read from; everything may be called from any thread.

    A handler must not block, and may be called once more after `remove` from another thread: whoever removes a file that
    it is about to close lets its handler find that out under a lock of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._wakeup, self._waker = os.pipe()
        self._is_closed = False
        self._selector.register(self._wakeup, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="gpulayer-runtime", daemon=True)
        self._thread.start()

    def add(self, file: int | HasFileno, handle: Callable[[], object]) -> None:
        """Call `handle` whenever there is something to read, or the end of it."""
        # An epoll that is being waited on takes new entries; so does a kqueue.
        with self._lock:
            if not self._is_closed:
                self._selector.register(file, selectors.EVENT_READ, handle)

    def remove(self, file: int | HasFileno) -> None:
        """Look at a file no more; one that isn't looked at is no error."""
        with self._lock, contextlib.suppress(KeyError, ValueError):
            if not self._is_closed:
                self._selector.unregister(file)

    def close(self) -> None:
        """End the thread; the files that are left are their owners'."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        os.close(self._waker)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._handle(key)
        self._selector.close()
        os.close(self._wakeup)

    def _handle(self, key: selectors.SelectorKey) -> None:
        try:
            key.data()
        except Exception:  # noqa: BLE001 - the top of this thread: one file's fault, and the others are still to be heard
            _log.exception("what a process of a task sent could not be handled; it is not listened to any more")
            self.remove(key.fileobj)
