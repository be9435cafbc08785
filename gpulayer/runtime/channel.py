"""The agent's end of the unix socket on which ranks and launchers of one task report. One thread; runs in the agent.

Messages are objects with a `type`; `rank_main` and `torchrun_main` say what each holds. Only processes of the same user
are heard.
"""

from __future__ import annotations

import logging
import os
import selectors
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpulayer.runtime.frames import FrameSocket
from gpulayer.runtime.process_tree import IS_LINUX

_log = logging.getLogger(__name__)
_UCRED = struct.Struct("3i")  # pid, uid, gid


class ChannelPeer:
    """One connection; compare by identity. `send` is thread-safe and never raises: who is gone needs no answer."""

    def __init__(self, connection: FrameSocket) -> None:
        self.connection = connection

    def send(self, message: dict[str, Any]) -> None:
        try:
            self.connection.send(message)
        except OSError as error:
            _log.debug("a process of the task left before it was answered: %s", error)


class Channel:
    """Listens at `path` and calls back from its thread.

    Args:
        on_message: for each message, with the files that came with it, which are the callee's to close.
        on_close: when a peer is gone; its messages have all been delivered.
    """

    def __init__(
        self,
        on_message: Callable[[ChannelPeer, dict[str, Any], list[int]], None],
        on_close: Callable[[ChannelPeer], None],
    ) -> None:
        self._on_message = on_message
        self._on_close = on_close
        # Under /tmp whatever TMPDIR says: a unix socket's path holds 107 bytes at most, 103 on macOS.
        self.folder = Path(tempfile.mkdtemp(prefix="gpulayer-", dir="/tmp"))
        self.path = str(self.folder / "channel")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._stop_reader, self._stop_writer = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._stop_reader, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="gpulayer-channel", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up on everybody and remove the socket's folder with whatever lies in it."""
        os.close(self._stop_writer)
        self._thread.join()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self) -> None:
        stopped = False
        while not stopped:
            closed: list[ChannelPeer] = []
            received: list[tuple[ChannelPeer, list[tuple[dict[str, Any], list[int]]]]] = []
            for key, _ in self._selector.select():
                if isinstance(key.data, ChannelPeer):
                    messages = key.data.connection.receive()
                    if messages is None:
                        closed.append(key.data)
                    else:
                        received.append((key.data, messages))
                elif key.fd == self._stop_reader:
                    stopped = True
                else:
                    self._accept()
            # Ends first: a rank that complains about a lost peer must not be heard before the peer's own end.
            for peer in closed:
                self._selector.unregister(peer.connection)
                peer.connection.close()
                self._on_close(peer)
            for peer, messages in received:
                for message, files in messages:
                    self._on_message(peer, message, files)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, ChannelPeer):
                key.data.connection.close()
        self._selector.close()
        self._listener.close()
        os.close(self._stop_reader)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        connection.setblocking(True)
        if IS_LINUX:
            _, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
            if uid not in (os.getuid(), 0):
                _log.warning("refused a process of user %d on a task's channel", uid)
                connection.close()
                return
        frames = FrameSocket(connection)
        self._selector.register(frames, selectors.EVENT_READ, ChannelPeer(frames))
