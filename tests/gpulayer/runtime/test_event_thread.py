from __future__ import annotations

import os
import queue
import threading

from gpulayer.runtime.event_thread import EventThread


def test_a_file_is_handled_until_it_is_removed(thread):
    reader, writer = os.pipe()
    heard: queue.SimpleQueue = queue.SimpleQueue()
    thread.add(reader, lambda: heard.put((os.read(reader, 1), threading.current_thread().name)))
    for _ in range(2):
        os.write(writer, b"x")
        assert heard.get(timeout=10) == (b"x", "gpulayer-runtime")
    thread.remove(reader)
    thread.remove(reader)
    for file in (reader, writer):
        os.close(file)


def test_a_handler_that_fails_costs_its_own_file_alone(thread, caplog):
    pipes = [os.pipe() for _ in range(2)]
    heard: queue.SimpleQueue = queue.SimpleQueue()

    def fail():
        heard.put("failed")
        raise RuntimeError("a fault of ours")

    thread.add(pipes[0][0], fail)
    thread.add(pipes[1][0], lambda: heard.put(os.read(pipes[1][0], 1)))
    os.write(pipes[0][1], b"x")
    assert heard.get(timeout=10) == "failed"
    os.write(pipes[1][1], b"y")
    assert heard.get(timeout=10) == b"y"
    assert heard.empty()
    assert "a fault of ours" in caplog.text
    thread.remove(pipes[1][0])
    for file in (file for pipe in pipes for file in pipe):
        os.close(file)


def test_a_closed_thread_takes_nothing_and_ends(thread):
    other = EventThread()
    other.close()
    other.close()
    reader, writer = os.pipe()
    other.add(reader, lambda: None)
    other.remove(reader)
    assert not other._thread.is_alive()
    for file in (reader, writer):
        os.close(file)
