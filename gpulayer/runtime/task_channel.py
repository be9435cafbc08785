"""One task's channel: reads what ranks and launchers say, takes in the pipes that come along, answers where to meet.

Everything else goes on to `task_process`, which decides. Runs in the agent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from gpulayer.runtime.channel import Channel, ChannelPeer, ChannelUser
from gpulayer.runtime.output import OutputReader
from gpulayer.runtime.task_messages import Hello, PeerMessage, PublishRendezvous, ReadRendezvous, read_message
from gpulayer.runtime.task_plan import TaskEvents
from gpulayer.runtime.task_ranks import LocalRanks

_log = logging.getLogger(__name__)


class TaskChannel:
    """Hears the ranks on a `Channel`, until that rests.

    Args:
        channel: on which nobody else is heard.
        ranks: whose pipes are taken in.
        reader: reads those pipes.
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
        events: TaskEvents,
        *,
        on_message: Callable[[ChannelPeer, PeerMessage], None],
        on_close: Callable[[ChannelPeer], None],
        on_fault: Callable[[Exception], None],
    ) -> None:
        self._ranks = ranks
        self._reader = reader
        self._events = events
        self._on_message = on_message
        channel.serve(ChannelUser(self._hear, on_close, on_fault))

    def _hear(self, peer: ChannelPeer, fields: dict[str, Any], files: list[int]) -> None:
        with contextlib.ExitStack() as unused:
            for file in files:
                unused.callback(os.close, file)
            message = read_message(fields)
            if isinstance(message, Hello) and len(files) == 2 and self._ranks.find(message.rank) is not None:
                unused.pop_all()
                self._reader.add(message.rank, "stdout", files[0])
                self._reader.add(message.rank, "stderr", files[1])
        if message is None:
            _log.warning("a process of the task sent a message of an unknown type: %s", fields.get("type"))
        elif isinstance(message, PublishRendezvous | ReadRendezvous):
            # These may wait for the control plane, and the channel must go on listening.
            threading.Thread(target=self._meet, args=(peer, message), name="gpulayer-rendezvous", daemon=True).start()
        else:
            self._on_message(peer, message)

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
