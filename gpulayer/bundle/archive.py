"""Bundles as archives: the same files give the same bytes, and nothing hostile is ever unpacked.

An archive is an uncompressed tar of regular files and links with all incidental facts (owner, time, order) fixed. Runs in
the submitting process, and in the worker, which checks every member before it writes the first (`extract_archive`).
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gpulayer.errors import InvalidSpec
from gpulayer.protocol import Digest

EXTRACT_LIMIT_FILES = 1_000_000
"""More members than any bundle or input folder that `collect.py` makes."""
_DAMAGE = (tarfile.TarError, EOFError, ValueError, LookupError, OverflowError)
"""What tarfile raises for headers that make no sense."""
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
        with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, bufsize=1024 * 1024) as archive:  # type: ignore[call-overload]
            for name in sorted(self.files):
                _add(archive, name, self.files[name])


class _HashingSink:
    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        if self._file is not None:
            self._file.write(data)
        return len(data)

    def digest(self) -> Digest:
        return Digest(self._hash.hexdigest())


def _size_of(content: Path | bytes | Link) -> int:
    if isinstance(content, Link):
        return 0
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _add(archive: tarfile.TarFile, name: str, content: Path | bytes | Link) -> None:
    member = tarfile.TarInfo(name)
    member.mode = 0o644
    if isinstance(content, Link):
        member.type = tarfile.SYMTYPE
        member.linkname = content.target
        member.mode = 0o777
        archive.addfile(member)
    elif isinstance(content, bytes):
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    else:
        with content.open("rb") as file:
            facts = os.fstat(file.fileno())
            member.size = facts.st_size
            if facts.st_mode & 0o100:
                member.mode = 0o755
            archive.addfile(member, file)


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
