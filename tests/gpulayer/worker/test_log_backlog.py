"""Output between reading and sending: offsets, order, bounded memory."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

from gpulayer.protocol import LogChunk
from gpulayer.settings import LOG_CHUNK_BYTES
from gpulayer.worker.log_backlog import LogBacklog


def _backlog(tmp_path: Path, **options) -> LogBacklog:
    return LogBacklog(node=0, attempt=1, spool=tmp_path / "spool", clock=lambda: 5.0, **options)


def _all(backlog: LogBacklog, limit: int = 1 << 20) -> list[LogChunk]:
    backlog.seal()
    chunks: list[LogChunk] = []
    while batch := backlog.take(limit):
        chunks += batch
    return chunks


def test_bytes_in_odd_pieces_come_out_the_same(tmp_path: Path) -> None:
    text = ("é漢🙂\r\n" * 30_000 + "é漢🙂" * 10_000).encode()
    chance = random.Random(1)
    backlog = _backlog(tmp_path)
    chunks: list[LogChunk] = []
    at = 0
    while at < len(text):
        size = chance.choice([1, 1, 2, 3, 5, 1000, 70_000])
        backlog.add(0, "stdout", text[at : at + size])
        at += size
        if chance.random() < 0.001:
            chunks += _all(backlog)
    chunks += _all(backlog)
    assert b"".join(chunk.data for chunk in chunks) == text
    assert max(len(chunk.data) for chunk in chunks) <= LOG_CHUNK_BYTES
    at = 0
    for chunk in chunks:
        assert chunk.offset == at
        at += len(chunk.data)


def test_each_stream_counts_its_own_bytes_and_lines(tmp_path: Path) -> None:
    backlog = _backlog(tmp_path)
    backlog.add(0, "stdout", b"one\ntwo")
    backlog.add(1, "stdout", b"other\n")
    backlog.add(0, "stderr", b"bad\n")
    backlog.add(0, "stdout", b" two\nthree\n")
    backlog.add(None, "stderr", b"launcher")
    chunks = _all(backlog)
    assert [(chunk.rank, chunk.stream, chunk.offset, chunk.first_line, chunk.data) for chunk in chunks if chunk.rank == 0] == [
        (0, "stdout", 0, 0, b"one\ntwo"),
        (0, "stderr", 0, 0, b"bad\n"),
        (0, "stdout", 7, 1, b" two\nthree\n"),
    ]
    assert {(chunk.rank, chunk.data) for chunk in chunks if chunk.rank != 0} == {(1, b"other\n"), (None, b"launcher")}
    assert {chunk.time for chunk in chunks} == {5.0}
    backlog.add(0, "stdout", b"four\n")
    (later,) = _all(backlog)
    assert (later.offset, later.first_line) == (18, 3)


def test_memory_is_bounded_and_the_rest_waits_in_a_file_in_order(tmp_path: Path) -> None:
    limit = 256 * 1024
    backlog = _backlog(tmp_path, memory_bytes=limit)
    lines = [f"line {number} {'x' * 90}\n".encode() for number in range(40_000)]
    taken: list[LogChunk] = []
    for number, line in enumerate(lines):
        backlog.add(number % 3, "stdout", line)
        assert backlog.memory_bytes <= limit + 3 * LOG_CHUNK_BYTES
        if number == 20_000:
            taken += backlog.take(1 << 20)
    assert (tmp_path / "spool").stat().st_size > 1 << 20
    taken += _all(backlog)
    for rank in range(3):
        assert b"".join(chunk.data for chunk in taken if chunk.rank == rank) == b"".join(lines[rank::3])
    assert backlog.is_empty
    assert (tmp_path / "spool").stat().st_size == 0
    backlog.close()
    assert not (tmp_path / "spool").exists()


def test_a_million_progress_steps_leave_little_and_their_last_state(tmp_path: Path) -> None:
    backlog = _backlog(tmp_path)
    for first in range(0, 1_000_000, 1000):
        backlog.add(0, "stderr", b"".join(b"\r%7d/1000000 steps of training" % (first + step + 1) for step in range(1000)))
    backlog.add(0, "stderr", b"\ndone\n")
    chunks = _all(backlog)
    text = b"".join(chunk.data for chunk in chunks)
    assert len(text) < 100_000
    assert text.endswith(b"\r1000000/1000000 steps of training\ndone\n")
    at = 0
    for chunk in chunks:
        assert chunk.offset == at
        at += len(chunk.data)
    backlog.close()


def test_nothing_older_than_a_flush_is_overwritten_while_the_server_is_away(tmp_path: Path) -> None:
    now = [0.0]
    backlog = LogBacklog(node=0, attempt=1, spool=tmp_path / "spool", clock=lambda: now[0])
    for step in range(30):
        now[0] = step / 10
        backlog.add(0, "stdout", b"\rstep %02d" % step)
    assert b"".join(chunk.data for chunk in _all(backlog)).count(b"\r") >= 10
    backlog.close()


def test_a_long_line_without_an_end_is_cut_into_chunks(tmp_path: Path) -> None:
    backlog = _backlog(tmp_path, memory_bytes=1 << 20)
    for _ in range(64):
        backlog.add(0, "stdout", b"y" * (1 << 20))
        assert backlog.memory_bytes <= 2 << 20
    backlog.add(0, "stdout", b"\nafter\n")
    chunks = _all(backlog)
    assert sum(len(chunk.data) for chunk in chunks) == (64 << 20) + 7
    assert chunks[-1].data.endswith(b"\nafter\n")
    assert {chunk.first_line for chunk in chunks} == {0}
    backlog.close()


def test_a_full_disk_leaves_what_memory_holds_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "spool").symlink_to("/dev/full")
    backlog = _backlog(tmp_path, memory_bytes=LOG_CHUNK_BYTES * 2)
    for number in range(8):
        backlog.add(0, "stdout", bytes([number]) * LOG_CHUNK_BYTES)
    backlog.add(1, "stdout", b"more")
    assert backlog.fault is not None
    assert backlog.fault.errno == errno.ENOSPC
    assert [chunk.data[0] for chunk in _all(backlog)] == [0]
    assert backlog.is_empty
    backlog.close()


def test_a_file_that_was_cut_short_is_a_fault_and_not_the_end_of_the_output(tmp_path: Path) -> None:
    backlog = _backlog(tmp_path, memory_bytes=LOG_CHUNK_BYTES * 2)
    for _ in range(4):
        backlog.add(0, "stdout", b"x" * LOG_CHUNK_BYTES)
    os.truncate(tmp_path / "spool", 100)
    assert len(_all(backlog)) == 1
    assert backlog.fault is not None
    assert backlog.is_empty
    backlog.close()
