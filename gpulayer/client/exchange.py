"""One HTTP exchange, request for answer, whoever carries it: `direct.DirectExchange`, or `proxied.ProxiedExchange` with httpx.

Knows nothing of calls and credentials; `http_transport` decides what an answer means, and whether to ask again.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from io import FileIO
from typing import Protocol

from gpulayer.errors import InvalidSpec

CONNECT_SECONDS = 5.0
KEEPALIVE_SECONDS = 55.0
"""Idle connections are dropped by ourselves before common proxies do it (60 s)."""
KEPT_CONNECTIONS = 16
CLOSE_SECONDS = 2.0
"""How long close() waits for calls of other threads to notice it; they do at once, unless a name is being looked up."""
WRITE_SECONDS = 30.0
"""The least that each piece of a request may take to be sent."""
STREAM_BYTES = 1024 * 1024
"""The pieces in which an artifact is taken."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """Bytes of a file as the body of a request, which need not pass through this process."""

    file: FileIO
    offset: int
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """The bytes.

        Raises:
            InvalidSpec: the file has become shorter.
        """
        self.file.seek(self.offset)
        data = self.file.read(self.size)
        self.check(len(data))
        return data

    def check(self, found: int) -> None:
        """Refuse a part of which only so much was found."""
        if found < self.size:
            raise InvalidSpec("A file became shorter while it was sent.", asked=str(self.file.name), fix="Send it again.")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What is sent.

    Args:
        target: path and query, as they stand in the request.
        read_seconds: how long each piece of the answer is waited for.
        ends_at: on the monotonic clock, when all of it must be over, connecting included; None where only the pieces count.
            Through a proxy it holds for each step.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | FilePart | None
    read_seconds: float
    ends_at: float | None = None

    def limited(self, seconds: float) -> float:
        """Of so many seconds those that are left before `ends_at`.

        Raises:
            NoAnswer: none are.
        """
        if self.ends_at is None:
            return seconds
        left = self.ends_at - time.monotonic()
        if left <= 0:
            raise NoAnswer(Trouble.LATE, TimeoutError("timed out"))
        return min(seconds, left)

    def is_over(self) -> bool:
        return self.ends_at is not None and time.monotonic() >= self.ends_at


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class HttpStream:
    """The head of an answer whose body is taken in pieces."""

    status: int
    headers: Mapping[str, str]
    pieces: Iterator[bytes | bytearray]


class Trouble(StrEnum):
    """Why there is no answer."""

    NOBODY = "nobody"
    UNTRUSTED = "untrusted"
    CUT = "cut"
    LATE = "late"


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and those that it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def wake(one: socket.socket) -> None:
    """End a read or write that another thread waits in: unlike a close(), a shutdown() wakes it."""
    with contextlib.suppress(OSError, ValueError):
        # Not SSLSocket's own, which takes the TLS state from under the thread that reads.
        socket.socket.shutdown(one, socket.SHUT_RDWR)


class NoAnswer(Exception):
    """The exchange failed; the cause says how."""

    def __init__(self, trouble: Trouble, cause: BaseException) -> None:
        super().__init__(str(cause) or type(cause).__name__)
        self.trouble = trouble
        self.__cause__ = cause

    @property
    def was_refused(self) -> bool:
        """Whether a machine is there that says that nobody listens."""
        return any(isinstance(cause, ConnectionRefusedError) for cause in causes(self))


class ExchangeClosed(Exception):
    """`close` was called, before the exchange or under it."""


class Exchange(Protocol):
    """How a request reaches one server. Safe to use from several threads."""

    def ask(self, request: HttpRequest, *, fresh: bool = False) -> HttpAnswer:
        """Send a request and read all of its answer.

        Args:
            request: to be sent once.
            fresh: on a connection that was not used before, where the carrier can choose.

        Raises:
            NoAnswer: none came.
            ExchangeClosed: see there.
        """

    def stream(self, request: HttpRequest) -> AbstractContextManager[HttpStream]:
        """As `ask`, with the body in pieces inside the block."""

    def close(self) -> None:
        """Give connections back; a thread that waits for an answer gets `ExchangeClosed`."""
