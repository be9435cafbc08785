"""Messages over a unix stream socket: JSON objects with a length before them, and open files beside them.

Used by the keeper, the agent, ranks and launchers alike, so it imports nothing that takes time to load.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

_HEADER = struct.Struct("!IB")  # bytes of JSON, number of files
_LARGEST_MESSAGE_BYTES = 64 * 1024 * 1024  # an environment and a command line fit many times over
_READ_BYTES = 256 * 1024
_MOST_FILES = 16
_INT = struct.Struct("i")
_FILES_BYTES = socket.CMSG_LEN(_MOST_FILES * _INT.size)
# Files that arrive must not leak into processes that are started meanwhile; only Linux does it in one step.
_CLOSE_ON_EXEC = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
_DO_NOT_WAIT = _CLOSE_ON_EXEC | int(socket.MSG_DONTWAIT)


class FrameSocket:
    """One end of a connection. Sending is thread-safe; receiving belongs to one thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._send_lock = threading.Lock()
        self._buffer = bytearray()
        self._files: list[int] = []
        self.was_reset = False
        """The other end went with something unread that was sent to it."""
        self._waiting: deque[dict[str, Any]] = deque()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: dict[str, Any], files: Sequence[int] = ()) -> None:
        """Send one message; the given files are duplicated into the other process.

        Raises:
            OSError: the other end is gone.
        """
        body = json.dumps(message, separators=(",", ":")).encode()
        data = memoryview(_HEADER.pack(len(body), len(files)) + body)
        with self._send_lock:
            sent = socket.send_fds(self._socket, [data], list(files)) if files else self._socket.send(data)
            if sent < len(data):
                self._socket.sendall(data[sent:])

    def receive(self, *, wait: bool = True) -> list[tuple[dict[str, Any], list[int]]] | None:
        """Read once and return the messages that are complete, with their files.

        None when the other end is gone, or what it sends is no message: then nothing further can be told apart.

        Args:
            wait: block until there is something; else there may be no message.
        """
        flags = _CLOSE_ON_EXEC if wait else _DO_NOT_WAIT
        try:
            # `socket.recv_fds` drops its flags.
            data, ancillary, _, _ = self._socket.recvmsg(_READ_BYTES, _FILES_BYTES, flags)
        except BlockingIOError:
            return []
        except ConnectionError:
            self.was_reset = True
            return None
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files = struct.unpack(f"{len(content) // _INT.size}i", content[: len(content) - len(content) % _INT.size])
                for file in files if not _CLOSE_ON_EXEC else ():
                    os.set_inheritable(file, False)
                self._files.extend(files)
        if not data:
            return None
        self._buffer += data
        complete = []
        while len(self._buffer) >= _HEADER.size:
            size, count = _HEADER.unpack_from(self._buffer)
            if size > _LARGEST_MESSAGE_BYTES:
                return None  # not one of ours
            end = _HEADER.size + size
            if len(self._buffer) < end:
                break
            try:
                message = json.loads(self._buffer[_HEADER.size : end].decode())
            except ValueError:
                return None
            if not isinstance(message, dict):
                return None
            del self._buffer[:end]
            complete.append((message, self._files[:count]))
            del self._files[:count]
        return complete

    def receive_one(self) -> dict[str, Any] | None:
        """Block until a message is there and return it, without its files; None when the other end is gone."""
        while not self._waiting:
            messages = self.receive()
            if messages is None:
                return None
            self._waiting.extend(message for message, _ in messages)
        return self._waiting.popleft()

    def set_timeout(self, seconds: float | None) -> None:
        """Bound every later receive and send; they raise TimeoutError."""
        self._socket.settimeout(seconds)

    def shutdown(self) -> None:
        """End both directions, so that whoever receives here or there sees the end; the socket stays open."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Be done with the socket without closing its file, whose number may be another's by now."""
        self._socket.detach()

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files.clear()
        self._socket.close()


def connect(path: str) -> FrameSocket:
    """Connect to a unix socket."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return FrameSocket(connection)
