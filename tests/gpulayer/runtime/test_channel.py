from __future__ import annotations

import errno
import os
import queue
import socket
import struct

import pytest

from gpulayer.runtime.channel import Channel, ChannelUser
from gpulayer.runtime.frames import connect


@pytest.fixture
def path(tmp_path):
    return tmp_path / "channel"


def listen(thread, path, on_message, on_close, on_fault) -> Channel:
    channel = Channel(thread, path)
    channel.serve(ChannelUser(on_message, on_close, on_fault))
    return channel


def test_a_channel_hears_answers_and_notes_the_end(thread, path):
    heard: queue.SimpleQueue = queue.SimpleQueue()

    def on_message(peer, message, files):
        for file in files:
            os.close(file)
        heard.put((message, len(files)))
        peer.send({"type": "ack"})

    channel = listen(thread, path, on_message, lambda peer: heard.put("closed"), heard.put)
    rank = connect(channel.path)
    rank.send({"type": "hello"}, [1, 2])
    assert rank.receive_one() == {"type": "ack"}
    assert heard.get(timeout=10) == ({"type": "hello"}, 2)
    rank.close()
    assert heard.get(timeout=10) == "closed"
    channel.close()


def test_the_socket_is_removed(thread, path):
    channel = listen(thread, path, lambda *_: None, lambda _: None, lambda _: None)
    assert path.is_socket()
    channel.close()
    channel.close()
    assert not path.exists()


def test_a_peer_that_left_is_no_error(thread, path):
    peers: queue.SimpleQueue = queue.SimpleQueue()
    channel = listen(thread, path, lambda peer, *_: peers.put(peer), lambda peer: peers.put(peer), peers.put)
    rank = connect(channel.path)
    rank.send({"type": "hello"})
    peer = peers.get(timeout=10)
    rank.close()
    assert peers.get(timeout=10) is peer
    peer.send({"type": "ack"})
    channel.close()


@pytest.mark.parametrize("bad", [struct.pack("!IB", 3, 0) + b"???", struct.pack("!IB", 2, 0) + b"[]"])
def test_a_peer_that_sends_no_message_is_hung_up_on_and_the_others_are_heard(thread, path, bad):
    heard: queue.SimpleQueue = queue.SimpleQueue()
    channel = listen(thread, path, lambda peer, message, files: heard.put(message["n"]), lambda peer: heard.put("closed"), heard.put)
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


def test_a_channel_that_can_take_nobody_in_says_so(thread, path, monkeypatch):
    faults: queue.SimpleQueue = queue.SimpleQueue()
    channel = listen(thread, path, lambda *_: None, lambda _: None, faults.put)

    def fail(self):
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(Channel, "_accept", fail)
    peer = connect(channel.path)
    assert faults.get(timeout=10).errno == errno.EMFILE
    peer.close()
    channel.close()
    assert not path.exists()


def test_a_channel_that_cannot_be_opened_touches_nothing(thread, path):
    path.touch()
    with pytest.raises(OSError, match="in use"):
        Channel(thread, path)
    assert path.exists()


def test_the_next_user_hears_nothing_of_the_last(thread, path):
    first: queue.SimpleQueue = queue.SimpleQueue()
    second: queue.SimpleQueue = queue.SimpleQueue()
    channel = listen(thread, path, lambda peer, message, _: first.put(message), lambda _: first.put("closed"), first.put)
    rank = connect(channel.path)
    rank.send({"n": 1})
    assert first.get(timeout=10) == {"n": 1}
    with channel._lock:  # the event thread does not come to it
        late = connect(channel.path)
        late.send({"n": 2})
        assert channel.rest()
        channel.serve(ChannelUser(lambda peer, message, _: second.put(message), lambda _: second.put("closed"), second.put))
    assert rank.receive_one() is None
    assert late.receive_one() is None
    other = connect(channel.path)
    other.send({"n": 3})
    assert second.get(timeout=10) == {"n": 3}
    assert first.empty()
    for end in (rank, late, other):
        end.close()
    channel.close()
    assert not channel.rest()


def test_who_comes_while_nobody_listens_is_hung_up_on_by_the_next_rest(thread, path):
    channel = Channel(thread, path)
    peer = connect(channel.path)
    peer.send({"n": 1}, [1])
    assert channel.rest()
    assert peer.receive_one() is None
    peer.close()
    channel.close()
