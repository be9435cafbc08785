"""The agent's end of the unix socket on which ranks and launchers of one task report. Runs in the agent's event thread.

Messages are objects with a `type`; `rank_main` and `torchrun_main` say what each holds. Only processes of the same user
are heard.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gpulayer.runtime.event_thread import EventThread
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


class ChannelUser(NamedTuple):
    """Whoever hears what is said on a channel; called from the event thread.

    Args:
        on_message: for each message, with the files that came with it, which are the callee's to close.
        on_close: when a peer is gone; its messages have all been delivered.
        on_fault: called at most once, when nobody can be heard any more.
    """

    on_message: Callable[[ChannelPeer, dict[str, Any], list[int]], None]
    on_close: Callable[[ChannelPeer], None]
    on_fault: Callable[[Exception], None]


class Channel:
    """Listens at `path`, for one user after the other.

    Args:
        events: the thread that listens.
        path: where; nothing is there yet.
    """

    def __init__(self, events: EventThread, path: Path) -> None:
        self._events = events
        self._user: ChannelUser | None = None
        self._lock = threading.RLock()  # held while peers are served, so that `close` takes none away meanwhile
        self._is_closed = False
        self._has_failed = False
        self.path = str(path)
        with contextlib.ExitStack() as made:  # no file to be had, or no room: nothing half-made is left
            self._listener = made.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            self._listener.bind(self.path)
            made.callback(path.unlink, missing_ok=True)
            self._listener.listen(128)
            self._listener.setblocking(False)
            # One of its own inside the event thread's: what arrived together is told in the order that `_serve_once` gives it.
            self._selector = made.enter_context(selectors.DefaultSelector())
            self._selector.register(self._listener, selectors.EVENT_READ, None)
            events.add(self._selector, self._serve)
            made.pop_all()

    def serve(self, user: ChannelUser) -> None:
        """Hear peers for this user, until `rest`."""
        with self._lock:
            self._user = user
            if self._has_failed:
                user.on_fault(OSError("the channel failed while nobody listened"))

    def drain(self) -> None:
        """Hear what peers that are gone have said last; whoever is alive and goes on speaking is cut off at the next pause."""
        with self._lock:
            while not (self._is_closed or self._has_failed) and self._selector.select(0):
                self._serve()

    def rest(self) -> bool:
        """Hang up on everybody, also on those who have not been heard yet; False where the channel is good for no other user."""
        with self._lock:
            self._user = None
            if self._is_closed or self._has_failed:
                return False
            try:
                while self._accept():
                    pass
            except OSError:
                return False
            self._hang_up_on_all()
            return True

    def close(self) -> None:
        """Hang up on everybody and remove the socket."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._events.remove(self._selector)
            self._hang_up_on_all()
            self._selector.close()
            self._listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)  # noqa: PTH108

    def _hang_up_on_all(self) -> None:
        if len(self._selector.get_map()) == 1:
            return  # nobody beside the listener
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, ChannelPeer):
                self._selector.unregister(key.data.connection)
                key.data.connection.close()

    def _serve(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            try:
                self._serve_once()
            except Exception as error:  # noqa: BLE001 - a task whose ranks can't be heard is ended, and the others go on
                _log.exception("a task's channel has failed")
                self._has_failed = True
                self._events.remove(self._selector)
                if self._user is not None:
                    self._user.on_fault(error)

    def _serve_once(self) -> None:
        closed: list[ChannelPeer] = []
        received: list[tuple[ChannelPeer, list[tuple[dict[str, Any], list[int]]]]] = []
        for key, _ in self._selector.select(0):
            if isinstance(key.data, ChannelPeer):
                messages = self._receive(key.data)
                if messages is None:
                    closed.append(key.data)
                else:
                    received.append((key.data, messages))
            else:
                self._accept()
        # Ends first: a rank that complains about a lost peer must not be heard before the peer's own end.
        for peer in closed:
            self._hang_up(peer)
        for peer, messages in received:
            try:
                for message, files in messages:
                    self._tell(peer, message, files)
            except Exception:  # noqa: BLE001 - one peer's fault: the others are still to be heard
                _log.exception("hung up on a process of the task: what it said could not be handled")
                self._hang_up(peer)

    def _receive(self, peer: ChannelPeer) -> list[tuple[dict[str, Any], list[int]]] | None:
        try:
            return peer.connection.receive(wait=False)
        except OSError as error:
            _log.warning("hung up on a process of the task: %s", error)
            return None

    def _hang_up(self, peer: ChannelPeer) -> None:
        self._selector.unregister(peer.connection)
        peer.connection.close()
        if self._user is not None:
            self._user.on_close(peer)

    def _tell(self, peer: ChannelPeer, message: dict[str, Any], files: list[int]) -> None:
        if self._user is not None:
            self._user.on_message(peer, message, files)
            return
        for file in files:
            os.close(file)

    def _accept(self) -> bool:
        """Take one peer in; False where none waits."""
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return False
        except ConnectionError:
            return True
        connection.setblocking(True)
        if IS_LINUX:
            _, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
            if uid not in (os.getuid(), 0):
                _log.warning("refused a process of user %d on a task's channel", uid)
                connection.close()
                return True
        frames = FrameSocket(connection)
        self._selector.register(frames, selectors.EVENT_READ, ChannelPeer(frames))
        return True
