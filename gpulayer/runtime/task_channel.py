"""One task's channel: reads what ranks and launchers say, takes in the pipes that come along, answers where to meet.

Everything else goes on to `task_process`, which decides. Runs in the agent.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from gpulayer.runtime.channel import Channel, ChannelPeer, ChannelUser
from gpulayer.runtime.output import OutputReader
from gpulayer.runtime.task_messages import Hello, PeerMessage, PublishRendezvous, ReadRendezvous, Records, read_message
from gpulayer.runtime.task_plan import TaskEvents
from gpulayer.runtime.task_ranks import LocalRanks
from gpulayer.runtime.task_stacks import StackDumps

_log = logging.getLogger(__name__)


class TaskChannel:
    """Hears the ranks on a `Channel`, until that rests.

    Args:
        channel: on which nobody else is heard.
        ranks: whose pipes are taken in.
        reader: reads those of their output.
        stacks: reads those of their stacks.
        events: knows where the nodes of the attempt meet.
        on_message: for every other message, from that thread.
        on_close: when a peer is gone.
        on_fault: called at most once, when nobody can be heard any more.
    """

    def __init__(
        self,
        channel: Channel,
        ranks: LocalRanks,
        reader: OutputReader,
        stacks: StackDumps,
        events: TaskEvents,
        *,
        on_message: Callable[[ChannelPeer, PeerMessage], None],
        on_close: Callable[[ChannelPeer], None],
        on_fault: Callable[[Exception], None],
    ) -> None:
        self._ranks = ranks
        self._reader = reader
        self._stacks = stacks
        self._events = events
        self._on_message = on_message
        self._on_fault = on_fault
        channel.serve(ChannelUser(self._hear, on_close, on_fault))

    def _hear(self, peer: ChannelPeer, fields: dict[str, Any], files: list[int]) -> None:
        with contextlib.ExitStack() as unused:
            for file in files:
                unused.callback(os.close, file)
            message = read_message(fields)
            if isinstance(message, Hello) and len(files) != len(message.files):
                # The kernel drops a file that comes while this process has as many open as it may.
                self._on_fault(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
            elif isinstance(message, Hello) and self._ranks.find(message.rank) is not None:
                unused.pop_all()
                self._take_pipes(message, files)
        if message is None:
            _log.warning("a process of the task sent a message of an unknown type: %s", fields.get("type"))
        elif isinstance(message, Records):
            # From any process of a rank: what it forked or started speaks on a connection of its own.
            if self._ranks.find(message.rank) is not None:
                self._events.on_records(message.rank, message.records, message.lost)
        elif isinstance(message, PublishRendezvous | ReadRendezvous):
            # These may wait for the control plane, and the channel must go on listening.
            threading.Thread(target=self._meet, args=(peer, message), name="gpulayer-rendezvous", daemon=True).start()
        else:
            self._on_message(peer, message)

    def _take_pipes(self, hello: Hello, files: list[int]) -> None:
        """Of stdout and stderr, where the rank has pipes of its own making, and of its stacks, where it can tell them."""
        for name, file in zip(hello.files, files, strict=True):
            if name == "stacks":
                self._stacks.add(hello.rank, file)
            else:
                self._reader.add(hello.rank, name, file)

    def _meet(self, peer: ChannelPeer, message: PublishRendezvous | ReadRendezvous) -> None:
        try:
            if isinstance(message, PublishRendezvous):
                self._events.publish_rendezvous(message.address, message.port)
                peer.send({"published": True})
            else:
                address, port = self._events.read_rendezvous()
                peer.send({"address": address, "port": port})
        except Exception as error:  # noqa: BLE001 - the top of this thread; the launcher is told and fails with it
            peer.send({"refused": f"{type(error).__name__}: {error}"})
