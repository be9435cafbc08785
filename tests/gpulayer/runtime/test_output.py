from __future__ import annotations

import os
import threading

import pytest

from gpulayer.runtime.output import OutputReader


class Taken:
    def __init__(self) -> None:
        self.data: dict[tuple[int | None, str], bytes] = {}
        self._changed = threading.Condition()

    def __call__(self, rank, stream, data) -> None:
        with self._changed:
            self.data[rank, stream] = self.data.get((rank, stream), b"") + data
            self._changed.notify_all()

    def wait_for(self, rank, stream, data) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.data.get((rank, stream)) == data, 10)


def test_text_without_a_newline_is_passed_on_at_once(thread):
    taken = Taken()
    reader = OutputReader(thread, taken, pytest.fail)
    writer = reader.open_pipe(0, "stdout")
    os.write(writer, b"half")
    taken.wait_for(0, "stdout", b"half")
    os.close(writer)
    reader.finish()


def test_streams_are_kept_apart_and_whole(thread):
    taken = Taken()
    reader = OutputReader(thread, taken, pytest.fail)
    pipes = {(rank, stream): reader.open_pipe(rank, stream) for rank in (0, 1, None) for stream in ("stdout", "stderr")}

    def write(writer: int, word: bytes) -> None:
        for number in range(2000):
            os.write(writer, b"%s %d\n" % (word, number))
        os.close(writer)

    threads = [threading.Thread(target=write, args=(writer, f"{key}".encode())) for key, writer in pipes.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reader.finish()
    for key in pipes:
        assert taken.data[key] == b"".join(b"%s %d\n" % (f"{key}".encode(), number) for number in range(2000))


def test_a_pipe_that_a_stranger_holds_open_does_not_hold_the_end(thread):
    taken = Taken()
    reader = OutputReader(thread, taken, pytest.fail)
    writer = reader.open_pipe(0, "stdout")
    os.write(writer, b"x" * 500_000 + b"END")
    reader.finish()
    assert taken.data[0, "stdout"].endswith(b"END")
    os.close(writer)


def test_the_last_lines_come_from_stderr_or_else_from_stdout(thread):
    reader = OutputReader(thread, Taken(), pytest.fail)
    out, err = reader.open_pipe(0, "stdout"), reader.open_pipe(1, "stderr")
    os.write(out, b"".join(b"line %d\n" % number for number in range(10_000)))
    os.write(err, "é\nlast".encode())
    for writer in (out, err):
        os.close(writer)
    reader.finish()
    assert reader.last_lines(0) == tuple(f"line {number}" for number in range(9980, 10_000))
    assert reader.last_lines(1) == ("é", "last")
    assert reader.last_lines(2) == ()


def test_output_that_cannot_be_taken_in_is_told_once_and_reading_goes_on(thread):
    faults: list[Exception] = []

    def full(rank, stream, data):
        raise OSError("no space")

    reader = OutputReader(thread, full, faults.append)
    writer = reader.open_pipe(0, "stdout")
    for _ in range(64):
        os.write(writer, b"x" * (1 << 20))  # more than a pipe holds
    os.close(writer)
    reader.finish()
    assert [str(fault) for fault in faults] == ["no space"]
    assert reader.last_lines(0)[0].startswith("x")
