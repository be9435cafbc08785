"""Bundles as archives: the same files give the same bytes, and nothing hostile is ever unpacked.

An archive is an uncompressed tar of regular files and links with all incidental facts (owner, time, order) fixed. Runs in
the submitting process, and in the worker, which checks every member before it writes the first (`extract_archive`).
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, NamedTuple

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
    with archive.open("rb", buffering=_PIECE_BYTES) as file:
        members = _checked_members(file, archive, limit_files)
        top = str(destination)
        folders, links = {""}, []
        for name, member in members.items():
            folder = name if member.kind is _Kind.FOLDER else name.rpartition("/")[0]
            if folder not in folders:
                os.makedirs(f"{top}/{folder}", exist_ok=True)  # noqa: PTH103 (a Path for each member takes longer than its folder)
                folders.add(folder)
            if member.kind is _Kind.LINK:
                links.append((f"{top}/{name}", member.target))
            elif member.kind is _Kind.FILE:
                _extract(file, member, f"{top}/{name}")
        # Links last: no file of this archive can be written through one.
        for target, linkname in links:
            os.symlink(linkname, target)  # noqa: PTH211 (as above)


def _extract(file: IO[bytes], member: _Member, target: str) -> None:
    # O_EXCL and O_NOFOLLOW: what lies there already is never written through.
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        file.seek(member.offset)
        left = member.size
        while left:
            data = file.read(min(left, _PIECE_BYTES))
            if not data:
                raise InvalidSpec("The archive became shorter while it was unpacked.", asked=target)
            left -= len(data)
            while data:
                data = data[os.write(descriptor, data) :]
        os.fchmod(descriptor, 0o755 if member.is_program else 0o644)
    finally:
        os.close(descriptor)


class _Kind(Enum):
    FILE = "file"
    LINK = "link"
    FOLDER = "folder"


class _Member(NamedTuple):
    """What an archive holds under one name: `size` bytes from `offset` on, or a link to `target`."""

    kind: _Kind
    offset: int = 0
    size: int = 0
    is_program: bool = False
    target: str = ""


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


def _checked_members(file: IO[bytes], archive: Path, limit_files: int) -> dict[str, _Member]:
    members: dict[str, _Member] = {}
    total = size_left = os.fstat(file.fileno()).st_size
    try:
        for written_name, member in _members(file, archive):
            name = _checked_name(written_name)
            if name == ".":
                continue
            if name in members:
                raise _refused(written_name, "the name comes twice")
            if len(members) >= limit_files:
                raise _refused(written_name, f"it holds more than {limit_files} members")
            size_left -= member.size
            if size_left < 0 or member.offset + member.size > total:
                raise _refused(written_name, "its members claim more bytes than it has")
            members[name] = member
    except _DAMAGE as error:
        raise InvalidSpec(f"The archive is damaged: {error}.", asked=str(archive)) from error
    sound = {""}
    for name, member in members.items():
        if (folder := name.rpartition("/")[0]) not in sound:
            for parent in _parents(name):
                above = members.get(parent)
                if above is not None and above.kind is not _Kind.FOLDER:
                    raise _refused(name, "it lies below a file or a link")
            sound.add(folder)
        if member.kind is _Kind.LINK:
            _check_link(name, members)
    return members


def _members(file: IO[bytes], archive: Path) -> Iterator[tuple[str, _Member]]:
    """Every member with its name as written. tarfile reads all headers but those that `_header` makes itself."""
    with _open(archive) as opened:
        offset = 0
        while True:
            file.seek(offset)
            plain = _plain_member(file.read(tarfile.BLOCKSIZE), offset + tarfile.BLOCKSIZE)
            if plain is not None:
                yield plain
                offset = plain[1].offset + -(-plain[1].size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
                continue
            if offset:
                opened.offset, opened.firstmember = offset, None  # type: ignore[attr-defined]  # `next` goes on from there
            member = opened.next()
            if member is None:
                return
            yield member.name, _taken(member)
            offset = opened.offset


def _plain_member(block: bytes, offset: int) -> tuple[str, _Member] | None:
    """The file whose header this is, if it is byte for byte one of ours."""
    try:
        name, size = block[: tarfile.LENGTH_NAME].rstrip(b"\0").decode("ascii"), int(block[124:135], 8)
    except ValueError:
        return None
    is_program = block[104:107] == b"755"
    if size < 0 or block != _header(name, size, is_program=is_program):
        return None
    return name, _Member(_Kind.FILE, offset, size, is_program)


def _taken(member: tarfile.TarInfo) -> _Member:
    """What is unpacked of a member: refused unless it is of a kind that can do no harm."""
    if member.islnk():
        raise _refused(member.name, "hard links are not taken")
    if member.sparse is not None or not (member.isreg() or member.isdir() or member.issym()):
        raise _refused(member.name, "only regular files, folders and links are taken")
    if member.issym():
        return _Member(_Kind.LINK, size=member.size, target=member.linkname)
    if member.isdir():
        return _Member(_Kind.FOLDER, size=member.size)
    return _Member(_Kind.FILE, member.offset_data, member.size, bool(member.mode & 0o100))


def _checked_name(name: str) -> str:
    if "\\" in name or "\0" in name or name.startswith("/") or name[1:2] == ":":
        raise _refused(name, "its path is absolute or names a drive")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _refused(name, "its path leads upwards")
    return "/".join(parts) or "."


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _check_link(name: str, members: Mapping[str, _Member]) -> None:
    """Follow a link as the kernel would, through the archive's own links, and refuse it where it leaves the archive."""
    pending = members[name].target.split("/")
    position = name.split("/")[:-1]
    hops = 0
    if _is_rooted(members[name].target):
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
        if at is not None and at.kind is _Kind.LINK:
            hops += 1
            if hops > _LINK_HOPS:
                raise _refused(name, "the link leads round in a circle")
            if _is_rooted(at.target):
                raise _refused("/".join(position), "the link's target is absolute")
            position.pop()
            pending = at.target.split("/") + pending


def _is_rooted(target: str) -> bool:
    return target.startswith("/") or "\\" in target or target[1:2] == ":"
