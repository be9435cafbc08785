from __future__ import annotations

import errno
import os
import queue
import socket
import stat
import struct

import pytest

from gpulayer.runtime.channel import Channel
from gpulayer.runtime.frames import connect


def test_a_channel_hears_answers_and_notes_the_end():
    heard: queue.SimpleQueue = queue.SimpleQueue()

    def on_message(peer, message, files):
        for file in files:
            os.close(file)
        heard.put((message, len(files)))
        peer.send({"type": "ack"})

    channel = Channel(on_message, lambda peer: heard.put("closed"), heard.put)
    rank = connect(channel.path)
    rank.send({"type": "hello"}, [1, 2])
    assert rank.receive_one() == {"type": "ack"}
    assert heard.get(timeout=10) == ({"type": "hello"}, 2)
    rank.close()
    assert heard.get(timeout=10) == "closed"
    channel.close()


def test_the_socket_is_short_private_and_removed():
    channel = Channel(lambda *_: None, lambda _: None, lambda _: None)
    assert len(channel.path) < 100
    assert stat.S_IMODE(channel.folder.stat().st_mode) == 0o700
    (channel.folder / "left").mkdir()
    channel.close()
    assert not channel.folder.exists()


def test_a_peer_that_left_is_no_error():
    peers: queue.SimpleQueue = queue.SimpleQueue()
    channel = Channel(lambda peer, *_: peers.put(peer), lambda peer: peers.put(peer), peers.put)
    rank = connect(channel.path)
    rank.send({"type": "hello"})
    peer = peers.get(timeout=10)
    rank.close()
    assert peers.get(timeout=10) is peer
    peer.send({"type": "ack"})
    channel.close()


@pytest.mark.parametrize("bad", [struct.pack("!IB", 3, 0) + b"???", struct.pack("!IB", 2, 0) + b"[]"])
def test_a_peer_that_sends_no_message_is_hung_up_on_and_the_others_are_heard(bad):
    heard: queue.SimpleQueue = queue.SimpleQueue()
    channel = Channel(lambda peer, message, files: heard.put(message["n"]), lambda peer: heard.put("closed"), heard.put)
    good = connect(channel.path)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(channel.path)
        stranger.sendall(bad)
        assert heard.get(timeout=10) == "closed"
        assert stranger.recv(1) == b""
    other = connect(channel.path)
    other.send({"what": "no n"})  # as the callback finds out
    assert other.receive_one() is None
    assert heard.get(timeout=10) == "closed"
    good.send({"n": 1})
    assert heard.get(timeout=10) == 1
    for end in (good, other):
        end.close()
    channel.close()


def test_a_channel_that_can_take_nobody_in_says_so(monkeypatch):
    faults: queue.SimpleQueue = queue.SimpleQueue()
    channel = Channel(lambda *_: None, lambda _: None, faults.put)

    def fail(self):
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(Channel, "_accept", fail)
    peer = connect(channel.path)
    assert faults.get(timeout=10).errno == errno.EMFILE
    peer.close()
    channel.close()
    assert not channel.folder.exists()


def test_a_channel_that_cannot_be_opened_leaves_nothing(monkeypatch, tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    monkeypatch.setattr("gpulayer.runtime.channel.tempfile.mkdtemp", lambda **_: str(made))
    (made / "channel").touch()
    with pytest.raises(OSError, match="in use"):
        Channel(lambda *_: None, lambda _: None, pytest.fail)
    assert not made.exists()
