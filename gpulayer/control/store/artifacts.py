"""Artifacts of a home: files named by the SHA-256 of their bytes, in `artifacts/ab/<sha256>`, whole or not there.

They need no rows: a name can only ever hold these bytes. Parts are written to one temporary file per digest, which several
senders of the same bytes may share, and which any process of the home may finish. Such a file only ever grows, so that what
was digested of it once needs no second look.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpulayer.disk import GrowingSync, write_all
from gpulayer.errors import Conflict, InvalidSpec, TooLarge
from gpulayer.protocol import Digest
from gpulayer.settings import ARTIFACT_PART_BYTES

ABANDONED_SECONDS = 86400.0
"""An upload that nobody went on with for a day; its sender, should it come back, begins again."""

DIGESTS_KEPT = 16
"""So many uploads are digested while they arrive; any more are read once again at their end."""
PIECE_BYTES = 1024 * 1024

_DIGEST = re.compile(r"[0-9a-f]{64}")


class ArtifactFiles:
    """The artifacts below one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts = folder / ".parts"
        self._growing: dict[Digest, _Growing] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Forget what was digested of unfinished uploads; they can be gone on with."""
        with self._lock:
            growing, self._growing = list(self._growing.values()), {}
        for one in growing:
            one.close()

    def path(self, sha256: Digest) -> Path | None:
        """Where a complete artifact lies; None where it is not, or not whole."""
        path = self._final(sha256)
        return path if path.is_file() else None

    def first_missing(self, digests: Iterable[Digest]) -> Digest | None:
        """The first of these that is not here, or not whole; blocks on the disk."""
        return next((digest for digest in digests if self.path(digest) is None), None)

    def remove_abandoned_parts(self, now: float) -> None:
        """Remove what uploads that ended early have left; blocks on the disk."""
        if not self._parts.is_dir():
            return
        for path in self._parts.iterdir():
            if not _is_older(path, now - ABANDONED_SECONDS):
                continue
            with _locked(path):
                if _is_older(path, now - ABANDONED_SECONDS):  # its sender may have come back meanwhile
                    path.unlink()
                    self._forget(Digest(path.name))

    def put_part(self, sha256: Digest, *, offset: int, total_bytes: int, data: bytes | memoryview) -> bool:
        """Write one part; True once the artifact is whole and its digest right. Blocks on the disk.

        A part may be sent again, or by a second sender; what is there stays, and only a gap is refused.

        Raises:
            Conflict: there is a gap before this part (`details["offset"]` says where to go on), or the digest is wrong.
            InvalidSpec: a name that is no digest, or a part that reaches over `total_bytes`.
        """
        final = self._final(sha256)
        if len(data) > ARTIFACT_PART_BYTES:
            raise TooLarge("An artifact's part is over its limit.", asked=f"{len(data)} bytes", found=f"limit {ARTIFACT_PART_BYTES} bytes")
        if offset < 0 or offset + len(data) > total_bytes:
            raise InvalidSpec(
                "A part lies outside of its artifact.", asked=f"bytes {offset} to {offset + len(data)}", found=f"{total_bytes} bytes in all"
            )
        self._parts.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self._parts / sha256
        with _locked(temporary) as descriptor:
            if final.is_file():
                temporary.unlink(missing_ok=True)
                self._forget(sha256)
                return True
            size = os.fstat(descriptor).st_size
            if offset > size:
                raise Conflict(
                    "There is a gap before this part.",
                    asked=f"offset {offset}",
                    found=f"{size} bytes",
                    fix="Go on from there.",
                    details={"offset": size},
                )
            added = memoryview(data)[size - offset :]
            write_all(descriptor, added, size)
            end = size + len(added)
            self._follow(sha256, temporary, descriptor, size, added)
            if end < total_bytes:
                return False
            self._finish(descriptor, temporary, final, sha256, total_bytes)
            return True

    def _follow(self, sha256: Digest, temporary: Path, descriptor: int, size: int, added: memoryview) -> None:
        """Digest what was added to a file of this size; the caller holds the file's lock."""
        dropped = []
        with self._lock:
            growing = self._growing.get(sha256)
            if growing is not None and not growing.is_of(descriptor):
                dropped.append(self._growing.pop(sha256))
                growing = None
            if growing is None and size == 0:
                growing = self._growing[sha256] = _Growing(temporary)
                if len(self._growing) > DIGESTS_KEPT:
                    dropped.append(self._growing.pop(next(iter(self._growing))))
        for one in dropped:
            one.close()
        if growing is not None:
            growing.add(descriptor, size, added)

    def _forget(self, sha256: Digest) -> None:
        with self._lock:
            growing = self._growing.pop(sha256, None)
        if growing is not None:
            growing.close()

    def _finish(self, descriptor: int, temporary: Path, final: Path, sha256: Digest, total_bytes: int) -> None:
        with self._lock:
            growing = self._growing.pop(sha256, None)
        try:
            if growing is not None and growing.is_of(descriptor):
                found, sync = growing.hexdigest(), growing.sync
            else:
                found, sync = _digest_of(descriptor), GrowingSync(descriptor)
            self._check(found, descriptor, temporary, sha256, total_bytes)
            sync.finish()
        finally:
            if growing is not None:
                growing.close()
        final.parent.mkdir(exist_ok=True, mode=0o700)
        temporary.rename(final)
        folder = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _check(self, found: str, descriptor: int, temporary: Path, sha256: Digest, total_bytes: int) -> None:
        if found != sha256:
            size = os.fstat(descriptor).st_size
            temporary.unlink()
            raise Conflict(
                "The bytes of an artifact are not those of its name.",
                asked=f"{sha256}, {total_bytes} bytes",
                found=f"{found}, {size} bytes",
                fix="Send it again from the start.",
                details={"offset": 0},
            )

    def _final(self, sha256: Digest) -> Path:
        if not _DIGEST.fullmatch(sha256):
            raise InvalidSpec("An artifact's name is a SHA-256 in lower-case hexadecimal digits.", asked=repr(sha256))
        return self._folder / sha256[:2] / sha256


class _Growing:
    """The digest of a file as far as it has arrived, and its sync.

    Holds the file open: its number on the disk is no other file's as long as that lasts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        facts = os.fstat(self._descriptor)
        self._number = (facts.st_dev, facts.st_ino)
        self._digest = hashlib.sha256()
        self._size = 0
        self.sync = GrowingSync(self._descriptor)

    def is_of(self, descriptor: int) -> bool:
        facts = os.fstat(descriptor)
        return (facts.st_dev, facts.st_ino) == self._number

    def add(self, descriptor: int, size: int, added: memoryview) -> None:
        """Take in what was added, and before it what another process has added up to `size`."""
        while self._size < size:
            data = os.pread(descriptor, min(PIECE_BYTES, size - self._size), self._size)
            self._digest.update(data)
            self._size += len(data)
        self._digest.update(added)
        self._size += len(added)
        self.sync.wrote(len(added))

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    def close(self) -> None:
        self.sync.abandon()
        os.close(self._descriptor)
        if self.sync.has_failed:
            self._path.unlink(missing_ok=True)  # what lies there may be less than was digested: its sender begins again


def _digest_of(descriptor: int) -> str:
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Hold the temporary file's lock; a file that its holder finished or dropped meanwhile is opened anew."""
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_still(path, descriptor):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _is_older(path: Path, than: float) -> bool:
    try:
        return path.stat().st_mtime < than
    except FileNotFoundError:
        return False
