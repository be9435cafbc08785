"""An artifact as a file on this side: sent in parts, and written so that a damaged one never lies under its name."""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gpulayer.client.exchange import FilePart
from gpulayer.disk import write_all
from gpulayer.errors import Conflict, InternalError
from gpulayer.protocol import Digest
from gpulayer.settings import ARTIFACT_PART_BYTES

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

IN_THREAD_BYTES = 128 * 1024
"""Less is digested sooner than a thread is told to."""
READ_BYTES = 1024 * 1024


def write_artifact(destination: Path, sha256: Digest, parts: Iterable[bytes | bytearray]) -> None:
    """Write the parts beside `destination`, check their digest, and only then let the file appear under its name.

    It is not synced: what a power cut takes can be fetched again, and whoever keeps it, as a worker's cache does, syncs it.

    Raises:
        InternalError: the bytes have another digest.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    partial = destination.parent / f".gpulayer-{uuid.uuid4().hex}"
    try:
        with partial.open("xb", buffering=0) as file, Digesting() as digesting:
            for part in parts:
                digesting.add(part)
                write_all(file.fileno(), part)
            found = digesting.hexdigest()
        if found != sha256:
            raise InternalError("An artifact arrived damaged: its digest is another.", asked=sha256, found=found, fix="Fetch it again.")
        partial.replace(destination)
    finally:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()


class Digesting:
    """A digest that is taken in a thread of its own, while the next part is read or arrives, and this one is written."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._pool: ThreadPoolExecutor | None = None
        self._taken: Future[None] | None = None

    def __enter__(self) -> Digesting:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def add(self, part: bytes | bytearray | memoryview) -> None:
        """Take in a part; waits for the one before, so that never more than two are in memory.

        The part stays as it is until the next one was added.
        """
        self._wait()
        if len(part) < IN_THREAD_BYTES:
            self._digest.update(part)
            return
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(1, thread_name_prefix="gpulayer-digest")
        self._taken = self._pool.submit(self._digest.update, part)

    def hexdigest(self) -> str:
        self._wait()
        return self._digest.hexdigest()

    def _wait(self) -> None:
        if self._taken is not None:
            self._taken.result()
            self._taken = None


def file_digest(path: Path) -> tuple[Digest, int]:
    """The file's digest and size; it is read while what was read before is digested."""
    size = 0
    with path.open("rb", buffering=0) as file, Digesting() as digesting:
        reading, digested = (memoryview(bytearray(READ_BYTES)) for _ in range(2))
        while count := file.readinto(reading):
            digesting.add(reading[:count])
            size += count
            reading, digested = digested, reading
        return Digest(digesting.hexdigest()), size


def send_parts(path: Path, send: Callable[[FilePart, int], None], *, part_bytes: int = ARTIFACT_PART_BYTES) -> None:
    """Send the file in parts, in order: `send(part, total)`. An empty file is one empty part.

    Where the control plane has less than was sent (it was restarted on another disk, or the upload expired), this goes
    back to what it has, once.
    """
    offset = 0
    went_back = False
    with path.open("rb", buffering=0) as file:
        total = os.fstat(file.fileno()).st_size
        while True:
            part = FilePart(file, offset, min(part_bytes, total - offset))
            try:
                send(part, total)
            except Conflict as error:
                stored = error.details.get("offset")
                if went_back or not isinstance(stored, int) or not 0 <= stored <= offset:
                    raise
                went_back = True
                offset = stored
                continue
            offset += len(part)
            if offset >= total:
                return
