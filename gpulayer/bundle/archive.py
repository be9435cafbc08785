"""Bundles as archives: the same files give the same bytes, and nothing hostile is ever unpacked.

An archive is an uncompressed tar of regular files and links with all incidental facts (owner, time, order) fixed. Runs in
the submitting process, and in the worker, which checks every member before it writes the first (`extract_archive`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gpulayer.errors import InternalError, InvalidSpec
from gpulayer.protocol import Digest

EXTRACT_LIMIT_FILES = 1_000_000
"""More members than any bundle or input folder that `collect.py` makes."""
_DAMAGE = (tarfile.TarError, EOFError, ValueError, LookupError, OverflowError)
"""What tarfile raises for headers that make no sense."""
_PIECE_BYTES = 1024 * 1024
_LINK_HOPS = 40  # as many as Linux follows


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link inside the bundle; `target` is relative to the link's own folder."""

    target: str


@dataclass(frozen=True)
class Bundle:
    """Files by posix path relative to the bundle's top: a file on disk, bytes, or a link."""

    files: Mapping[str, Path | bytes | Link]

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
        self._write(header)

    def add_content(self, data: bytes) -> None:
        """A member's content, or a piece of it; all but the last are whole blocks."""
        self._write(data)
        if odd := len(data) % tarfile.BLOCKSIZE:
            self._write(_ZEROS[: tarfile.BLOCKSIZE - odd])

    def end(self) -> None:
        self._write(_ZEROS[: 2 * tarfile.BLOCKSIZE])
        if odd := self._written % tarfile.RECORDSIZE:
            self._write(_ZEROS[: tarfile.RECORDSIZE - odd])
        self._flush()

    def digest(self) -> Digest:
        return Digest(self._hash.hexdigest())

    def _write(self, data: bytes) -> None:
        self._blocks.append(data)
        self._written += len(data)
        self._waiting += len(data)
        if self._waiting >= _PIECE_BYTES:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._blocks)
        self._blocks.clear()
        self._waiting = 0
        self._hash.update(data)
        if self._file is not None:
            self._file.write(data)


def _size_of(content: Path | bytes | Link) -> int:
    if isinstance(content, Link):
        return 0
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _add(sink: _HashingSink, name: str, content: Path | bytes | Link) -> None:
    if isinstance(content, Link):
        member = tarfile.TarInfo(name)
        member.type = tarfile.SYMTYPE
        member.linkname = content.target
        member.mode = 0o777
        sink.add(member.tobuf(tarfile.PAX_FORMAT))
    elif isinstance(content, bytes):
        sink.add(_header(name, len(content), is_program=False))
        sink.add_content(content)
    else:
        descriptor = os.open(content, os.O_RDONLY)
        try:
            facts = os.fstat(descriptor)
            left = facts.st_size
            sink.add(_header(name, left, is_program=bool(facts.st_mode & 0o100)))
            while left:
                data = os.read(descriptor, min(left, _PIECE_BYTES))
                if len(data) < min(left, _PIECE_BYTES):
                    raise InternalError("A file became shorter while it was packed.", asked=str(content), fix="Pack it again.")
                sink.add_content(data)
                left -= len(data)
        finally:
            os.close(descriptor)


def _header(name: str, size: int, *, is_program: bool) -> bytes:
    """A regular file's header, as tarfile makes it, in an eighth of its time where the name is short and plain."""
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
_PLAIN_SIZE = 8**11 - 1
_NO_TIME = b"\0%011o\0" % 0
"""The end of the size, and a time of zero."""
_PLAIN_HEADERS = {False: _plain_header(0o644), True: _plain_header(0o755)}


def extract_archive(archive: Path, destination: Path, *, limit_files: int = EXTRACT_LIMIT_FILES) -> None:
    """Unpack into `destination`, made if missing; nothing is written when any member is refused.

    Raises:
        InvalidSpec: a member could write or point outside the folder, or is neither a plain file nor a link; it is named.
    """
    destination.mkdir(parents=True, exist_ok=True)
    with _open(archive) as opened:
        members = _checked_members(opened, archive, limit_files)
        links = []
        for name, member in members.items():
            target = destination / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if member.issym():
                links.append((target, member.linkname))
            elif member.isdir():
                target.mkdir(exist_ok=True)
            else:
                content = opened.extractfile(member)
                assert content is not None
                # O_EXCL and O_NOFOLLOW: what lies there already is never written through.
                descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
                with content, os.fdopen(descriptor, "wb") as file:
                    shutil.copyfileobj(content, file, 1024 * 1024)
                    os.fchmod(file.fileno(), 0o755 if member.mode & 0o100 else 0o644)
        # Links last: no file of this archive can be written through one.
        for target, linkname in links:
            target.symlink_to(linkname)


def _open(archive: Path) -> tarfile.TarFile:
    try:
        # "r:" takes uncompressed archives only, so that an archive never unpacks to more than its own size.
        return tarfile.open(archive, mode="r:")
    except _DAMAGE as error:
        raise InvalidSpec(f"This is not a bundle: {error}.", asked=str(archive), fix="Bundles are uncompressed tar archives.") from error


def _refused(name: str, why: str) -> InvalidSpec:
    return InvalidSpec(
        f"The archive is refused: {why}.", asked=f"member {name!r}", fix="Pack regular files and links inside the folder only."
    )


def _checked_members(opened: tarfile.TarFile, archive: Path, limit_files: int) -> dict[str, tarfile.TarInfo]:
    members: dict[str, tarfile.TarInfo] = {}
    size_left = archive.stat().st_size
    try:
        for member in opened:
            name = _checked_name(member)
            if name == ".":
                continue
            if name in members:
                raise _refused(member.name, "the name comes twice")
            if len(members) >= limit_files:
                raise _refused(member.name, f"it holds more than {limit_files} members")
            size_left -= member.size
            if size_left < 0:
                raise _refused(member.name, "its members claim more bytes than it has")
            members[name] = member
    except _DAMAGE as error:
        raise InvalidSpec(f"The archive is damaged: {error}.", asked=str(archive)) from error
    for name, member in members.items():
        for parent in _parents(name):
            above = members.get(parent)
            if above is not None and not above.isdir():
                raise _refused(member.name, "it lies below a file or a link")
        if member.issym():
            _check_link(name, members)
    return members


def _checked_name(member: tarfile.TarInfo) -> str:
    name = member.name
    if member.islnk():
        raise _refused(name, "hard links are not taken")
    if member.sparse is not None or not (member.isreg() or member.isdir() or member.issym()):
        raise _refused(name, "only regular files, folders and links are taken")
    if "\\" in name or "\0" in name or name.startswith("/") or name[1:2] == ":":
        raise _refused(name, "its path is absolute or names a drive")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _refused(name, "its path leads upwards")
    return "/".join(parts) or "."


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _check_link(name: str, members: Mapping[str, tarfile.TarInfo]) -> None:
    """Follow a link as the kernel would, through the archive's own links, and refuse it where it leaves the archive."""
    pending = members[name].linkname.split("/")
    position = name.split("/")[:-1]
    hops = 0
    if _is_rooted(members[name].linkname):
        raise _refused(name, "the link's target is absolute")
    while pending:
        step = pending.pop(0)
        if step in ("", "."):
            continue
        if step == "..":
            if not position:
                raise _refused(name, "the link leads out of the archive")
            position.pop()
            continue
        position.append(step)
        at = members.get("/".join(position))
        if at is not None and at.issym():
            hops += 1
            if hops > _LINK_HOPS:
                raise _refused(name, "the link leads round in a circle")
            if _is_rooted(at.linkname):
                raise _refused(at.name, "the link's target is absolute")
            position.pop()
            pending = at.linkname.split("/") + pending


def _is_rooted(target: str) -> bool:
    return target.startswith("/") or "\\" in target or target[1:2] == ":"
