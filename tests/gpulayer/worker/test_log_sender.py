"""The log sender: what is sent when, what happens while the server is away, and how it ends."""

from __future__ import annotations

import errno
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gpulayer.errors import AttemptLost, GPUlayerError, ServerUnreachable, TooManyCalls
from gpulayer.protocol import LogChunk
from gpulayer.worker.log_sender import LogSender

WAIT = 30.0


class Server:
    """Stores batches as the control plane does: a resend stores nothing twice."""

    def __init__(self) -> None:
        self.stored: dict[tuple[int | None, str, int], bytes] = {}
        self.batches: list[tuple[LogChunk, ...]] = []
        self.fail: Callable[[int], Exception | None] = lambda number: None
        self.open = threading.Event()
        self.open.set()
        self._changed = threading.Condition()

    def __call__(self, batch: tuple[LogChunk, ...]) -> None:
        with self._changed:
            self.batches.append(batch)
            number = len(self.batches)
            self._changed.notify_all()
        assert self.open.wait(WAIT)
        error = self.fail(number)
        if error is not None:
            raise error
        for chunk in batch:
            self.stored.setdefault((chunk.rank, chunk.stream, chunk.offset), chunk.data)

    def wait_for_batches(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.batches) >= count, WAIT)

    def text(self, rank: int | None = 0, stream: str = "stdout") -> bytes:
        return b"".join(self.stored[key] for key in sorted(key for key in self.stored if key[:2] == (rank, stream)))


@pytest.fixture
def server() -> Server:
    return Server()


def _sender(server: Server, tmp_path: Path, **options) -> LogSender:
    options = {"on_lost": pytest.fail, "on_fault": pytest.fail, **options}
    sender = LogSender(server, tell_start=lambda: None, node=0, attempt=1, spool=tmp_path / "spool", clock=lambda: 1.0, **options)
    sender.start()
    return sender


def test_what_is_printed_before_the_end_is_stored_at_the_end_in_one_batch(server: Server, tmp_path: Path) -> None:
    sender = _sender(server, tmp_path, flush_seconds=600)
    sender.add(0, "stdout", b"first\n")
    sender.add(0, "stdout", b"END")
    assert sender.close(WAIT)
    assert server.text() == b"first\nEND"
    assert len(server.batches) == 1


def _unstarted(server: Server, tmp_path: Path) -> LogSender:
    told = {
        "on_lost": pytest.fail,
        "on_fault": pytest.fail,
        "tell_start": lambda: pytest.fail("a short process's start is told with its end"),
    }
    return LogSender(server, node=0, attempt=1, spool=tmp_path / "spool", clock=lambda: 1.0, **told)


def test_the_last_output_of_a_short_process_is_kept_for_the_word_of_its_end(server: Server, tmp_path: Path) -> None:
    sender = _unstarted(server, tmp_path)
    sender.add(0, "stdout", b"first\nEND")
    sender.add(0, "stderr", b"x")
    assert sender.close(WAIT, rest_bytes=64 * 1024)
    assert [(chunk.stream, chunk.data) for chunk in sender.rest] == [("stdout", b"first\nEND"), ("stderr", b"x")]
    assert server.batches == []


def test_more_than_that_is_sent(server: Server, tmp_path: Path) -> None:
    sender = _unstarted(server, tmp_path)
    sender.add(0, "stdout", b"x" * 100_000)
    assert sender.close(WAIT, rest_bytes=64 * 1024)
    assert sender.rest == ()
    assert server.text() == b"x" * 100_000


def test_what_is_left_of_a_longer_one_is_kept_too(server: Server, tmp_path: Path) -> None:
    sender = _sender(server, tmp_path, flush_seconds=0.01)
    sender.add(0, "stdout", b"sent")
    server.wait_for_batches(1)
    sender.add(0, "stdout", b"x" * 1000)
    assert sender.close(WAIT, rest_bytes=64 * 1024)
    assert server.text() + b"".join(chunk.data for chunk in sender.rest) == b"sent" + b"x" * 1000


def test_an_abandoned_sender_that_never_started_ends(server: Server, tmp_path: Path) -> None:
    sender = _unstarted(server, tmp_path)
    sender.add(0, "stdout", b"x")
    sender.abandon()
    assert not sender.close(WAIT)
    assert server.batches == []


def test_unfinished_lines_are_sent_after_the_flush_interval(server: Server, tmp_path: Path) -> None:
    sender = _sender(server, tmp_path, flush_seconds=0.05)
    sender.add(0, "stdout", b"no newline")
    server.wait_for_batches(1)
    assert sender.close(WAIT)
    assert server.text() == b"no newline"


@pytest.mark.parametrize("data", [b"line\n" * 500, b"x" * (256 * 1024)])
def test_a_lot_is_sent_without_waiting_for_the_interval(server: Server, tmp_path: Path, data: bytes) -> None:
    sender = _sender(server, tmp_path, flush_seconds=600)
    sender.add(0, "stdout", b"a")
    sender.add(0, "stdout", data)
    server.wait_for_batches(1)
    assert sender.close(WAIT)
    assert server.text() == b"a" + data


def test_a_stalled_server_stalls_nobody_and_memory_stays_bounded(server: Server, tmp_path: Path) -> None:
    server.open.clear()
    sender = _sender(server, tmp_path, memory_bytes=1 << 20, flush_seconds=0.01)
    text = b"".join(b"line %d\n" % number for number in range(400_000))
    for at in range(0, len(text), 10_007):
        sender.add(0, "stdout", text[at : at + 10_007])
    assert sender.memory_bytes() <= (1 << 20) + (1 << 17)
    assert (tmp_path / "spool").stat().st_size > 1 << 20
    server.open.set()
    assert sender.close(WAIT)
    assert server.text() == text
    assert not (tmp_path / "spool").exists()


def test_a_batch_that_was_not_answered_is_sent_again_unchanged(server: Server, tmp_path: Path) -> None:
    server.fail = lambda number: ServerUnreachable("away") if number <= 3 else None
    sender = _sender(server, tmp_path, flush_seconds=0.01)
    sender.add(0, "stdout", b"one\n")
    server.wait_for_batches(2)
    sender.add(0, "stdout", b"two\n")
    assert sender.close(WAIT)
    assert server.batches[0] == server.batches[1] == server.batches[2] == server.batches[3]
    assert server.text() == b"one\ntwo\n"


def test_a_lost_attempt_ends_the_sender_and_says_so_once(server: Server, tmp_path: Path) -> None:
    told: list[GPUlayerError] = []
    server.fail = lambda number: AttemptLost("over")
    sender = _sender(server, tmp_path, flush_seconds=0.01, on_lost=told.append)
    sender.add(0, "stdout", b"x")
    assert not sender.close(WAIT)
    sender.add(0, "stdout", b"later")
    assert [error.code for error in told] == ["attempt_lost"]
    assert len(server.batches) == 1


def test_abandoning_ends_a_sender_that_waits_for_its_server(server: Server, tmp_path: Path) -> None:
    server.fail = lambda number: ServerUnreachable("away")
    sender = _sender(server, tmp_path, flush_seconds=0.01)
    sender.add(0, "stdout", b"x")
    server.wait_for_batches(1)
    assert not sender.close(0.05)
    sender.abandon()
    assert not sender.close(WAIT)


def test_a_full_disk_is_told_and_what_was_read_before_is_sent(server: Server, tmp_path: Path) -> None:
    told: queue.SimpleQueue[Exception] = queue.SimpleQueue()
    server.open.clear()
    (tmp_path / "spool").symlink_to("/dev/full")
    sender = _sender(server, tmp_path, memory_bytes=1 << 17, flush_seconds=0.01, on_fault=told.put)
    text = b"x" * (1 << 20)
    sender.add(0, "stdout", text)
    sender.add(1, "stdout", b"not kept any more")
    error = told.get(timeout=WAIT)
    assert isinstance(error, OSError)
    assert error.errno == errno.ENOSPC
    server.open.set()
    assert sender.close(WAIT)
    assert 0 < len(server.text()) < len(text)
    assert server.text(rank=1) == b""
    assert told.empty()


def test_a_fault_in_sending_is_never_taken_for_sent(server: Server, tmp_path: Path) -> None:
    told: list[Exception] = []
    server.fail = lambda number: RuntimeError("a fault of ours")
    sender = _sender(server, tmp_path, flush_seconds=0.01, on_fault=told.append)
    sender.add(0, "stdout", b"x")
    assert not sender.close(WAIT)
    assert [str(error) for error in told] == ["a fault of ours"]


def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.fail = lambda number: TooManyCalls("busy") if number == 1 else None
    sender = _sender(server, tmp_path, flush_seconds=0.01)
    sender.add(0, "stdout", b"x")
    assert sender.close(WAIT)
    assert server.text() == b"x"
