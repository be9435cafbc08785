"""Bundles as archives: the same files give the same bytes, on every system.

An archive is an uncompressed tar of regular files and links with all incidental facts (owner, time, order) fixed. Runs in
the submitting process; what a worker takes of an archive lies in `unpack`.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gpulayer.errors import InvalidSpec
from gpulayer.protocol import Digest

EXTRACT_LIMIT_FILES = 1_000_000
"""More members than any bundle or input folder that `collect.py` makes."""
PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link inside the bundle; `target` is relative to the link's own folder."""

    target: str


Content = Path | str | bytes | Link


@dataclass(frozen=True)
class Bundle:
    """Files by posix path relative to the bundle's top: a file on disk, bytes, or a link.

    A file on disk may be named by a string: for many small files, making Path objects takes as long as packing them.
    """

    files: Mapping[str, Content]

    @property
    def size_bytes(self) -> int:
        """Bytes of content, without the archive's own headers."""
        return sum(_size_of(content) for content in self.files.values())

    def file_sizes(self) -> dict[str, int]:
        """Bytes of content by path, in order."""
        return {name: _size_of(self.files[name]) for name in sorted(self.files)}

    def digest(self) -> Digest:
        """SHA-256 of the archive that `write` makes."""
        sink = _HashingSink(None)
        self._write_to(sink)
        return sink.digest()

    def write(self, path: Path) -> Digest:
        """Write the archive and return the digest of what was written, which holds even when a file changed meanwhile."""
        with path.open("wb") as file:
            sink = _HashingSink(file)
            self._write_to(sink)
        return sink.digest()

    def _write_to(self, sink: _HashingSink) -> None:
        for name in sorted(self.files):
            _add(sink, name, self.files[name])
        sink.end()


class _HashingSink:
    """Takes an archive in its blocks, and passes it on in large pieces."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._blocks: list[bytes] = []
        self._waiting = 0
        self._written = 0

    def add(self, header: bytes) -> None:
        self._blocks.append(header)  # no content is far: it need not be passed on before that
        self._waiting += len(header)

    def add_content(self, data: bytes) -> None:
        """A member's content, or a piece of it; all but the last are whole blocks."""
        size = len(data)
        self._blocks.append(data)
        if odd := size % tarfile.BLOCKSIZE:
            self._blocks.append(_PADDING[odd])
            size += tarfile.BLOCKSIZE - odd
        self._waiting += size
        if self._waiting >= PIECE_BYTES:
            self._flush()

    def end(self) -> None:
        self.add(_ZEROS[: 2 * tarfile.BLOCKSIZE])
        self._flush()
        if odd := self._written % tarfile.RECORDSIZE:
            self.add(_ZEROS[: tarfile.RECORDSIZE - odd])
            self._flush()

    def digest(self) -> Digest:
        return Digest(self._hash.hexdigest())

    def _flush(self) -> None:
        data = b"".join(self._blocks)
        self._blocks.clear()
        self._written += self._waiting
        self._waiting = 0
        self._hash.update(data)
        if self._file is not None:
            self._file.write(data)


def _size_of(content: Content) -> int:
    if isinstance(content, Link):
        return 0
    return len(content) if isinstance(content, bytes) else Path(content).stat().st_size


def _add(sink: _HashingSink, name: str, content: Content) -> None:
    if isinstance(content, Link):
        member = tarfile.TarInfo(name)
        member.type = tarfile.SYMTYPE
        member.linkname = content.target
        member.mode = 0o777
        sink.add(member.tobuf(tarfile.PAX_FORMAT))
    elif isinstance(content, bytes):
        sink.add(file_header(name, len(content), is_program=False))
        sink.add_content(content)
    else:
        descriptor = os.open(content, _reading())
        try:
            facts = os.fstat(descriptor)
            left = facts.st_size
            sink.add(file_header(name, left, is_program=bool(facts.st_mode & stat.S_IXUSR)))
            while left:
                data = _read_piece(descriptor, min(left, PIECE_BYTES), content)
                sink.add_content(data)
                left -= len(data)
        finally:
            os.close(descriptor)


def _reading() -> int:
    """How a file is opened: Windows would open it as text, and change its line ends."""
    return os.O_RDONLY | getattr(os, "O_BINARY", 0)


def _read_piece(descriptor: int, size: int, content: Path | str) -> bytes:
    """So many bytes, however many reads they take: a network's file system may give less at once."""
    data = os.read(descriptor, size)
    if len(data) == size:
        return data
    pieces = [data]
    while data and (size := size - len(data)):
        data = os.read(descriptor, size)
        pieces.append(data)
    if not data:
        raise InvalidSpec("A file became shorter while it was packed.", asked=str(content), fix="Pack it again.")
    return b"".join(pieces)


def file_header(name: str, size: int, *, is_program: bool) -> bytes:
    """A regular file's header, byte for byte as tarfile makes it.

    Where the name is short and plain it is put together here: 1.5 µs for tarfile's 38 µs (CPython 3.11), which for a folder of
    many small files is most of the time that packing takes.
    """
    if not (name.isascii() and len(name) <= tarfile.LENGTH_NAME and size <= _PLAIN_SIZE):
        member = tarfile.TarInfo(name)
        member.size = size
        member.mode = 0o755 if is_program else 0o644
        return member.tobuf(tarfile.PAX_FORMAT)
    start, end, base = _PLAIN_HEADERS[is_program]
    encoded, digits = name.encode("ascii"), b"%011o" % size
    checksum = b"%06o\0 " % (base + sum(encoded) + sum(digits))
    return encoded.ljust(tarfile.LENGTH_NAME, b"\0") + start + digits + _NO_TIME + checksum + end


def _plain_header(mode: int) -> tuple[bytes, bytes, int]:
    """What all plain headers of this mode share, before the size and after the checksum, and the sum of its bytes."""
    start = b"%07o\0" % mode + b"%07o\0" % 0 * 2
    end = (tarfile.REGTYPE + bytes(tarfile.LENGTH_LINK) + tarfile.POSIX_MAGIC).ljust(tarfile.BLOCKSIZE - 156, b"\0")
    return start, end, sum(start) + sum(_NO_TIME) + sum(b" " * 8) + sum(end)


_ZEROS = bytes(tarfile.RECORDSIZE)
_PADDING = [bytes(tarfile.BLOCKSIZE - odd) for odd in range(tarfile.BLOCKSIZE)]
"""What follows a content that has so many bytes over whole blocks."""
_PLAIN_SIZE = 8**11 - 1
_NO_TIME = b"\0%011o\0" % 0
"""The end of the size, and a time of zero."""
_PLAIN_HEADERS = {False: _plain_header(0o644), True: _plain_header(0o755)}
