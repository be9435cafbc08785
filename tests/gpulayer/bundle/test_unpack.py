"""Unpacking: what was packed comes out, and hostile archives are refused before anything is written."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from gpulayer.bundle.archive import Bundle, Link
from gpulayer.bundle.unpack import extract_archive
from gpulayer.errors import InvalidSpec


def test_what_was_packed_comes_out_byte_for_byte(tmp_path: Path) -> None:
    long_name = "/".join(["folder-with-a-long-name"] * 8) + "/ü.bin"
    program = tmp_path / "program"
    program.write_bytes(b"#!/bin/sh\n")
    program.chmod(0o755)
    bundle = Bundle({long_name: b"\r\n\0\xff", "run": program, "again": Link("run"), "z/up": Link("../run"), "empty": b""})
    bundle.write(tmp_path / "a.tar")
    out = tmp_path / "out"
    extract_archive(tmp_path / "a.tar", out)
    assert (out / long_name).read_bytes() == b"\r\n\0\xff"
    assert (out / "run").stat().st_mode & 0o777 == 0o755
    assert (out / "empty").stat().st_mode & 0o777 == 0o644
    assert (out / "again").readlink() == Path("run")
    assert (out / "z" / "up").read_bytes() == b"#!/bin/sh\n"
    assert bundle.size_bytes == 4 + 10


def test_headers_of_others_are_read_among_ours(tmp_path: Path) -> None:
    archive = tmp_path / "mixed.tar"
    with tarfile.open(archive, "w") as writer:
        for name, mode in (("a", 0o600), ("b", 0o644), ("folder/", 0o755), ("folder/" + "ü" * 70, 0o644), ("c", 0o755), ("d", 0o666)):
            member, content = _file(name, name.encode() * 300)
            member.mode = mode
            if name.endswith("/"):
                member.type, member.size = tarfile.DIRTYPE, 0
            writer.addfile(member, io.BytesIO(content))
    extract_archive(archive, tmp_path / "out")
    found = {path.relative_to(tmp_path / "out").as_posix(): path for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == {
        name: name.encode() * 300 for name in ("a", "b", "folder/" + "ü" * 70, "c", "d")
    }
    assert {name for name, path in found.items() if path.stat().st_mode & 0o100} == {"c"}


def test_an_archive_cut_in_a_file_is_refused_whole(tmp_path: Path) -> None:
    archive = tmp_path / "cut.tar"
    Bundle({"a": b"x", "b": b"y" * 2000}).write(archive)
    os.truncate(archive, 3 * 512 + 100)
    with pytest.raises(InvalidSpec):
        extract_archive(archive, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def _file(name: str, content: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    return member, content


def _of_type(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = target
    return member, b""


def _link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return _of_type(name, tarfile.SYMTYPE, target)


HOSTILE = {
    "upwards": [_file("../evil")],
    "upwards inside": [_file("a/../../evil")],
    "absolute": [_file("/tmp/evil")],
    "drive": [_file("C:/evil")],
    "backslashes": [_file("..\\evil")],
    "link out": [_link("a", "../outside")],
    "link out absolute": [_link("a", "/etc/passwd")],
    "link out to a drive": [_link("a", "C:\\Windows")],
    "link chain": [_link("a", "."), _link("b", "a/..")],
    "link chain through a folder": [_file("d/e/f"), _link("x", "d/e"), _link("y", "x/../../..")],
    "link circle": [_link("a", "b"), _link("b", "a")],
    "file through a link": [_link("a", "b"), _file("a/evil")],
    "file below a file": [_file("a"), _file("a/evil")],
    "twice": [_file("a"), _file("./a")],
    "hard link": [_file("a"), _of_type("b", tarfile.LNKTYPE, "a")],
    "hard link out": [_of_type("b", tarfile.LNKTYPE, "/etc/passwd")],
    "character device": [_of_type("null", tarfile.CHRTYPE)],
    "block device": [_of_type("sda", tarfile.BLKTYPE)],
    "fifo": [_of_type("pipe", tarfile.FIFOTYPE)],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_whole(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "hostile.tar"
    with tarfile.open(archive, "w") as writer:
        for member, content in [_file("innocent"), *HOSTILE[name]]:
            writer.addfile(member, io.BytesIO(content))
    out = tmp_path / "in" / "out"
    with pytest.raises(InvalidSpec, match="refused"):
        extract_archive(archive, out)
    assert list(out.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"hostile.tar", "in"}


def test_bombs_are_refused(tmp_path: Path) -> None:
    member, _ = _file("big")
    member.size = 1 << 50
    claims = tmp_path / "claims.tar"
    claims.write_bytes(member.tobuf() + b"\0" * 1024)
    many = tmp_path / "many.tar"
    Bundle({str(number): b"" for number in range(11)}).write(many)
    packed = tmp_path / "packed.tar"
    with tarfile.open(packed, "w:gz") as writer:
        writer.addfile(*[_file("a", b"\0" * 100)[0], io.BytesIO(b"\0" * 100)])
    sparse = []
    for holes in ("0,0", "", "x"):
        sparse.append(tmp_path / f"sparse{holes}.tar")
        with tarfile.open(sparse[-1], "w", format=tarfile.PAX_FORMAT) as writer:
            hole, content = _file("hole", b"")
            hole.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(1 << 50), "GNU.sparse.map": holes}
            writer.addfile(hole, io.BytesIO(content))
    for archive in (claims, many, packed, *sparse):
        with pytest.raises(InvalidSpec):
            extract_archive(archive, tmp_path / "out", limit_files=10)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_file_never_goes_through_a_link_that_lies_there_already(tmp_path: Path) -> None:
    Bundle({"a": b"x"}).write(tmp_path / "a.tar")
    out = tmp_path / "out"
    out.mkdir()
    (out / "a").symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError):
        extract_archive(tmp_path / "a.tar", out)
    assert not (tmp_path / "victim").exists()
