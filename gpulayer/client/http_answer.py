"""The answer to one HTTP/1.1 request: its head read, its body taken in pieces.

Reads itself the one shape of answer that a control plane gives (a length is named), which costs a fifth of what http.client
takes for it (ADR-0032); every other shape is read by http.client. Runs wherever a `Connection` is used.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from gpulayer.client.exchange import NoAnswer, Trouble

Piece = bytes | bytearray

READ_BYTES = 64 * 1024


class Source(Protocol):
    """What is read of a socket."""

    def recv(self, size: int, /) -> bytes: ...
    def recv_into(self, buffer: Any, /) -> int: ...


class Answer:
    """The head of an answer; its body is read from the connection.

    Args:
        read: `read(size)`: at most so many bytes of the body, empty at its end.
        keeps: whether the connection can be used again once the body is read.
    """

    def __init__(self, status: int, headers: dict[str, str], read: Callable[[int], Piece], keeps: Callable[[], bool]) -> None:
        self.status = status
        self.headers = headers
        self._read = read
        self._keeps = keeps

    @property
    def keeps(self) -> bool:
        return self._keeps()

    def content(self) -> bytes:
        """All of the body."""
        return b"".join(self.pieces(READ_BYTES))

    def pieces(self, size: int) -> Iterator[Piece]:
        """The body in pieces of at most this size.

        Raises:
            NoAnswer: it was cut, or went silent.
        """
        with as_trouble():
            while piece := self._read(size):
                yield piece


@contextlib.contextmanager
def as_trouble() -> Iterator[None]:
    """What goes wrong in the block as `NoAnswer`."""
    try:
        yield
    except TimeoutError as error:
        raise NoAnswer(Trouble.LATE, error) from error
    except (OSError, ValueError) as error:
        # TLS that is closed under a reader complains with ValueError.
        raise NoAnswer(Trouble.CUT, error) from error


_AFTER_STATUS = (b" ", b"\r", b"")
_WITHOUT_LENGTH = (b"101", b"204", b"304")
"""They have no body, whatever length they name."""


def plain_answer(source: Source, data: bytes, end: int, method: str) -> Answer | None:
    """An HTTP/1.1 answer that names its length; None for every other shape."""
    head = data[: max(end, 0)]
    status = head[9:12]
    if head[:9] != b"HTTP/1.1 " or not status.isdigit() or head[12:13] not in _AFTER_STATUS or b"\r\n " in head or b"\r\n\t" in head:
        return None
    if status in _WITHOUT_LENGTH:
        return None
    headers: dict[str, str] = {}
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        name = name.lower()
        if name == "content-length" and name in headers:
            return None
        headers[name] = value.strip()
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdigit()) or "transfer-encoding" in headers:
        return None
    rest = data[end + 4 :]
    left = int(length) if method != "HEAD" else 0

    def read(size: int) -> Piece:
        nonlocal rest, left
        piece: Piece
        if rest and left:
            piece, rest = rest[:left], rest[left:]
        elif left:
            # What is small comes whole mostly, and then recv() alone is the quickest.
            piece = source.recv(min(size, left)) if size <= READ_BYTES else _filled(source, min(size, left))
        else:
            return b""
        left -= len(piece)
        if not piece:
            raise ConnectionResetError(f"It was cut in an answer, {left} bytes before its end.")
        return piece

    closes = "close" in headers.get("connection", "").lower()
    return Answer(int(status), headers, read, lambda: not closes and not left and not rest)


def _filled(source: Source, size: int) -> bytearray:
    """So many bytes, however many reads they take; fewer only where the other side ends before."""
    memory = bytearray(size)
    filled = 0
    with memoryview(memory) as view:
        while filled < size and (count := source.recv_into(view[filled:])):
            filled += count
    if filled < size:
        del memory[filled:]
    return memory


def any_answer(source: Source, data: bytes, method: str) -> Answer:
    """Whatever else HTTP allows: in chunks, up to the end of the connection, HTTP/1.0, after an interim answer."""
    import http.client

    class Replayed:
        """What HTTPResponse takes of a socket, beginning with what was read of it already."""

        def makefile(self, *_: Any) -> io.BufferedReader:
            return io.BufferedReader(_Replay(data, source), READ_BYTES)

    response = http.client.HTTPResponse(Replayed(), method=method)  # type: ignore[arg-type]  # it calls makefile() and nothing else
    try:
        response.begin()
    except http.client.HTTPException as error:
        raise ConnectionResetError(f"No HTTP came: {error!r}") from error

    def read(size: int) -> bytes:
        try:
            return response.read(size)
        except http.client.HTTPException as error:
            raise ConnectionResetError(f"It was cut in an answer: {error!r}") from error

    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, read, lambda: not response.will_close and response.isclosed())


class _Replay(io.RawIOBase):
    """Bytes that were read already, and then the socket."""

    def __init__(self, data: bytes, source: Source) -> None:
        self._data = data
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._data:
            return self._source.recv_into(buffer)
        piece, self._data = self._data[: len(buffer)], self._data[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)
