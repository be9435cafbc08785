"""Packing: the same input gives the same bytes, which are a tar file."""

from __future__ import annotations

import hashlib
import io
import os
import random
import tarfile
from pathlib import Path

import pytest

from gpulayer.bundle.archive import Bundle, Link, file_header
from gpulayer.bundle.collect import collect_sources
from gpulayer.errors import InvalidSpec


def test_the_same_files_give_the_same_digest(tmp_path: Path) -> None:
    digests = set()
    for number, order in enumerate((["a.py", "z/b.py", "c.sh"], ["c.sh", "z/b.py", "a.py"])):
        top = tmp_path / str(number)
        (top / "z").mkdir(parents=True)
        for name in order:
            (top / name).write_bytes(name.encode() + b"\r\nline\r\n")
            os.utime(top / name, (number, number))
        (top / "a.py").chmod(0o600 if number else 0o664)
        (top / "c.sh").chmod(0o700 if number else 0o775)
        bundle = collect_sources(top)
        digests.add(bundle.digest())
        assert bundle.write(tmp_path / f"{number}.tar") == bundle.digest()
        assert hashlib.sha256((tmp_path / f"{number}.tar").read_bytes()).hexdigest() == bundle.digest()
    assert len(digests) == 1


@pytest.mark.parametrize("name", ["a", "a/b.py", "n" * 100, "n" * 101, "ü", "with space", "z" * 99 + "/"])
@pytest.mark.parametrize("size", [0, 1, 512, 8**11 - 1, 8**11])
@pytest.mark.parametrize("is_program", [False, True])
def test_a_header_is_what_tarfile_makes(name: str, size: int, is_program: bool) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o755 if is_program else 0o644
    assert file_header(name, size, is_program=is_program) == member.tobuf(tarfile.PAX_FORMAT)


def test_tarfile_reads_what_is_written(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(3 * 1024 * 1024 + 5))
    Bundle({"b": large, "a": b"x" * 512, "c": Link("a"), "ü" * 60: b"y", "empty": b""}).write(tmp_path / "a.tar")
    assert (tmp_path / "a.tar").stat().st_size % tarfile.RECORDSIZE == 0
    with tarfile.open(tmp_path / "a.tar") as archive:
        assert archive.getnames() == ["a", "b", "c", "empty", "ü" * 60]
        assert archive.extractfile("b").read() == large.read_bytes()  # type: ignore[union-attr]


def test_a_files_name_and_bit_in_its_archive_are_what_tarfile_writes(tmp_path: Path) -> None:
    """A random folder, member by member: drawn once and for all, so that a failure comes again."""
    draw = random.Random(7)
    files: dict[str, Path | bytes | Link] = {}
    for number in range(200):
        name = "".join(draw.choices("abcXYZ019 ._-/~+ü", k=draw.randint(1, 120))) + f"/{number}"
        content = tmp_path / str(number)
        content.write_bytes(draw.randbytes(draw.choice([0, 1, 511, 512, 513, draw.randint(0, 5000)])))
        content.chmod(draw.choice([0o600, 0o644, 0o700, 0o755, 0o444, 0o677]))
        files[name] = content if draw.random() < 0.7 else content.read_bytes()
    Bundle(files).write(tmp_path / "ours.tar")
    with tarfile.open(tmp_path / "theirs.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            content = files[name]
            member = tarfile.TarInfo(name)
            data = content.read_bytes() if isinstance(content, Path) else content
            assert isinstance(data, bytes)
            is_program = isinstance(content, Path) and bool(content.stat().st_mode & 0o100)
            member.size, member.mode = len(data), 0o755 if is_program else 0o644
            archive.addfile(member, io.BytesIO(data))
    assert (tmp_path / "ours.tar").read_bytes() == (tmp_path / "theirs.tar").read_bytes()


class SomeAtOnce(io.FileIO):
    """A file of a network's file system: a read may bring less than was asked for."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 0, 700))


def test_a_short_read_is_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(os.urandom(3000))
    whole = Bundle({"file": tmp_path / "file"}).digest()
    monkeypatch.setattr(Path, "open", lambda self, mode, buffering: SomeAtOnce(self, mode))
    assert Bundle({"file": tmp_path / "file"}).digest() == whole


def test_a_file_that_becomes_shorter_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(bytes(3000))
    real = os.fstat

    def longer(descriptor: int) -> os.stat_result:
        facts = list(real(descriptor))
        facts[6] += 1
        return os.stat_result(facts)

    monkeypatch.setattr("gpulayer.bundle.archive.os.fstat", longer)
    with pytest.raises(InvalidSpec, match="shorter"):
        Bundle({"file": tmp_path / "file"}).digest()


def test_no_file_is_opened_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`os.open` is text on Windows where O_BINARY is not asked for: line ends change, and Ctrl-Z ends the file."""
    (tmp_path / "file").write_bytes(b"a\r\nb\x1ac\n")
    binary, opened = 1 << 30, []
    really_open = os.open

    def open_on_windows(path: str | Path, flags: int) -> int:
        opened.append(flags)
        return really_open(path, flags & ~binary)

    monkeypatch.setattr(os, "O_BINARY", binary, raising=False)
    monkeypatch.setattr(os, "open", open_on_windows)
    Bundle({"file": tmp_path / "file"}).write(tmp_path / "a.tar")
    assert [flags & binary for flags in opened] == [binary]
    assert b"a\r\nb\x1ac\n" in (tmp_path / "a.tar").read_bytes()
