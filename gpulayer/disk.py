"""Keeping a large file on disk without waiting for all of it at the end: it is synced while it is still being written.

Knows no protocol; for every layer.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

STRIDE_BYTES = 16 * 1024 * 1024
_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # macOS has the latter alone


class GrowingSync:
    """Syncs a file that grows, every so many bytes in a thread of its own.

    A system keeps what is written in memory for as long as it can: the sync of a large file at its end then takes as long as
    everything before it. Used by one thread at a time.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._unsynced = 0
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def wrote(self, count: int) -> None:
        """So many bytes more lie in the file. Never waits: where the disk is behind, it takes larger strides."""
        self._unsynced += count
        if self._unsynced >= STRIDE_BYTES and (self._thread is None or not self._thread.is_alive()):
            self._unsynced = 0
            self._thread = threading.Thread(target=self._sync, name="gpulayer-sync", daemon=True)
            self._thread.start()

    @property
    def has_failed(self) -> bool:
        """Whether the disk could not keep what was written. The system tells it once, and may have dropped those bytes then."""
        return self._error is not None

    def finish(self) -> None:
        """Return once all of it is on disk.

        Raises:
            OSError: the disk could not keep it, at this sync or at one in between.
        """
        self.abandon()
        self._sync(os.fsync)
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """Return once the descriptor is used no more, whatever is on disk by then."""
        if self._thread is not None:
            self._thread.join()

    def _sync(self, sync: Callable[[int], None] = _sync_data) -> None:
        try:
            sync(self._descriptor)
        except OSError as error:
            self._error = self._error or error


def write_all(descriptor: int, data: bytes | bytearray | memoryview, offset: int | None = None) -> None:
    """Write all of it, at the descriptor's own position or at `offset`."""
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            rest = view[done:]
            done += os.write(descriptor, rest) if offset is None else os.pwrite(descriptor, rest, offset + done)
