from __future__ import annotations

import os
import queue
import stat

from gpulayer.runtime.channel import Channel
from gpulayer.runtime.frames import connect


def test_a_channel_hears_answers_and_notes_the_end():
    heard: queue.SimpleQueue = queue.SimpleQueue()

    def on_message(peer, message, files):
        for file in files:
            os.close(file)
        heard.put((message, len(files)))
        peer.send({"type": "ack"})

    channel = Channel(on_message, lambda peer: heard.put("closed"))
    rank = connect(channel.path)
    rank.send({"type": "hello"}, [1, 2])
    assert rank.receive_one() == {"type": "ack"}
    assert heard.get(timeout=10) == ({"type": "hello"}, 2)
    rank.close()
    assert heard.get(timeout=10) == "closed"
    channel.close()


def test_the_socket_is_short_private_and_removed():
    channel = Channel(lambda *_: None, lambda _: None)
    assert len(channel.path) < 100
    assert stat.S_IMODE(channel.folder.stat().st_mode) == 0o700
    (channel.folder / "left").mkdir()
    channel.close()
    assert not channel.folder.exists()


def test_a_peer_that_left_is_no_error():
    peers: queue.SimpleQueue = queue.SimpleQueue()
    channel = Channel(lambda peer, *_: peers.put(peer), lambda peer: peers.put(peer))
    rank = connect(channel.path)
    rank.send({"type": "hello"})
    peer = peers.get(timeout=10)
    rank.close()
    assert peers.get(timeout=10) is peer
    peer.send({"type": "ack"})
    channel.close()
