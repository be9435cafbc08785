from __future__ import annotations

import os
import socket
import threading

import pytest

from gpulayer.runtime.frames import FrameSocket


@pytest.fixture
def pair():
    ours, theirs = (FrameSocket(end) for end in socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


def test_messages_arrive_whole_and_in_order(pair):
    ours, theirs = pair
    large = {"text": "é" * 2_000_000}
    sender = threading.Thread(target=lambda: [ours.send({"n": 1}), ours.send(large), ours.send({"n": 2})])
    sender.start()
    assert [theirs.receive_one() for _ in range(3)] == [{"n": 1}, large, {"n": 2}]
    sender.join()


def test_files_stay_with_their_message_and_are_not_inherited(pair):
    ours, theirs = pair
    pipes = [os.pipe() for _ in range(3)]
    ours.send({"n": 0}, [pipes[0][1]])
    ours.send({"n": 1})
    ours.send({"n": 2}, [pipes[1][1], pipes[2][1]])
    received = []
    while len(received) < 3:
        received += theirs.receive()
    assert [(message["n"], len(files)) for message, files in received] == [(0, 1), (1, 0), (2, 2)]
    os.write(received[2][1][1], b"third")
    assert os.read(pipes[2][0], 10) == b"third"
    for _, files in received:
        for file in files:
            assert not os.get_inheritable(file)
            os.close(file)
    for reader, writer in pipes:
        os.close(reader)
        os.close(writer)


def test_the_end_of_the_other_side(pair):
    ours, theirs = pair
    ours.send({"n": 1})
    ours.shutdown()
    assert theirs.receive_one() == {"n": 1}
    assert theirs.receive_one() is None


def test_bytes_of_somebody_else_end_the_connection():
    ours, theirs = socket.socketpair()
    with ours:
        ours.send(b"GET / HTTP/1.1\r\n\r\n")
        frames = FrameSocket(theirs)
        assert frames.receive() is None
        frames.close()
