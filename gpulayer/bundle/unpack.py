"""Unpacking a bundle's archive where it may come from anybody: every member is checked before the first is written.

Runs in the worker. How archives are made lies in `archive`.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import IO, NamedTuple

from gpulayer.bundle.archive import EXTRACT_LIMIT_FILES, PIECE_BYTES, file_header
from gpulayer.errors import InvalidSpec

_DAMAGE = (tarfile.TarError, EOFError, ValueError, LookupError, OverflowError)
"""What tarfile raises for headers that make no sense."""
_LINK_HOPS = 40  # as many as Linux follows


def extract_archive(archive: Path, destination: Path, *, limit_files: int = EXTRACT_LIMIT_FILES) -> None:
    """Unpack into `destination`, made if missing; nothing is written when any member is refused.

    Raises:
        InvalidSpec: a member could write or point outside the folder, or is neither a plain file nor a link; it is named.
    """
    destination.mkdir(parents=True, exist_ok=True)
    with archive.open("rb", buffering=PIECE_BYTES) as file:
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


def files_of(file: IO[bytes], archive: Path, *, limit_files: int) -> dict[str, tuple[int, int]]:
    """The plain files of an archive that is open: where the bytes of each begin, and how many there are.

    Raises:
        InvalidSpec: a member would not be unpacked; it is named.
    """
    members = _checked_members(file, archive, limit_files)
    return {name: (member.offset, member.size) for name, member in members.items() if member.kind is _Kind.FILE}


def _extract(file: IO[bytes], member: _Member, target: str) -> None:
    # O_EXCL and O_NOFOLLOW: what lies there already is never written through.
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        file.seek(member.offset)
        left = member.size
        while left:
            data = file.read(min(left, PIECE_BYTES))
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
    """Every member with its name as written. tarfile reads all headers but those that `archive.file_header` makes itself."""
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
    if size < 0 or block != file_header(name, size, is_program=is_program):
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
