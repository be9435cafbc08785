from __future__ import annotations

import os
import queue

import pytest
from support.runtime import RecordedEvents

from gpulayer.errors import Interrupted
from gpulayer.runtime.channel import Channel
from gpulayer.runtime.frames import connect
from gpulayer.runtime.output import OutputReader
from gpulayer.runtime.task_channel import TaskChannel
from gpulayer.runtime.task_messages import Hello
from gpulayer.runtime.task_ranks import LocalRanks
from gpulayer.runtime.task_stacks import StackDumps


@pytest.fixture
def events():
    return RecordedEvents()


@pytest.fixture
def heard():
    return queue.SimpleQueue()


@pytest.fixture
def channel(thread, tmp_path, events, heard):
    reader = OutputReader(thread, events.on_output, pytest.fail)
    stacks = StackDumps(thread, lambda: None)
    channel = Channel(thread, tmp_path / "channel")
    TaskChannel(
        channel,
        LocalRanks(2, 1),
        reader,
        stacks,
        events,
        on_message=lambda peer, message: heard.put(message),
        on_close=lambda peer: heard.put("closed"),
        on_fault=pytest.fail,
    )
    yield channel
    channel.close()
    stacks.close()
    reader.finish()


@pytest.mark.parametrize(("rank", "is_known"), [(2, True), (7, False)])
def test_pipes_of_this_nodes_ranks_are_read_and_others_closed(channel, events, heard, rank, is_known):
    pipes = [os.pipe() for _ in range(2)]
    peer = connect(channel.path)
    peer.send({"type": "hello", "rank": rank, "local_rank": 0, "pid": 5, "files": ["stdout", "stderr"]}, [reader for reader, _ in pipes])
    assert heard.get(timeout=10) == Hello(rank=rank, local_rank=0, pid=5, files=("stdout", "stderr"))
    for reader, _ in pipes:
        os.close(reader)
    if is_known:
        os.write(pipes[0][1], b"text")
        events.wait_for("text", rank)
    else:
        with pytest.raises(BrokenPipeError):
            os.write(pipes[0][1], b"text")
    for _, writer in pipes:
        os.close(writer)
    peer.close()


def test_where_to_meet(channel, events):
    peer = connect(channel.path)
    peer.send({"type": "publish_rendezvous", "address": "127.0.0.1", "port": 9})
    assert peer.receive_one() == {"published": True}
    peer.send({"type": "read_rendezvous"})
    assert peer.receive_one() == {"address": "127.0.0.1", "port": 9}

    def over(address, port):
        raise Interrupted("The attempt is over.")

    events.publish_rendezvous = over
    peer.send({"type": "publish_rendezvous", "address": "127.0.0.1", "port": 9})
    assert peer.receive_one() == {"refused": "Interrupted: The attempt is over."}
    peer.close()


def test_a_message_of_a_later_version_is_passed_over(channel, heard):
    peer = connect(channel.path)
    peer.send({"type": "of a later version"})
    peer.send({"type": "hello", "rank": 2, "local_rank": 0, "pid": 5})
    assert heard.get(timeout=10) == Hello(rank=2, local_rank=0, pid=5)
    peer.close()
