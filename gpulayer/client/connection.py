"""One HTTP/1.1 connection to a server: a request goes out in one write, and its answer is read in as few reads as it takes.

Reads itself the one shape of answer that a control plane gives (a length is named), which costs a fifth of what http.client
takes for it (ADR-0032); every other shape is read by http.client. Used by one thread at a time, woken by any.
"""

from __future__ import annotations

import contextlib
import io
import select
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from gpulayer.client.exchange import CONNECT_SECONDS, WRITE_SECONDS, FilePart, HttpRequest, NoAnswer, Trouble, wake

if TYPE_CHECKING:
    import ssl

Receive = Callable[[int], bytes]
"""At most so many bytes from the other side; empty at its end."""

READ_BYTES = 64 * 1024
HEAD_BYTES = 64 * 1024
"""A longer head is left to http.client, which has limits of its own."""
WRITE_BYTES = 256 * 1024
"""A body is sent in pieces of this size: a socket's timeout holds for one of them, not for a slow line's whole part."""


class Connection:
    """A connection to one server.

    Args:
        host: a name or an address, without brackets.
        context: for TLS; None without.
    """

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        self._host = host
        self._port = port
        self._context = context
        self._socket: socket.socket | None = None
        # Windows has no poll; everywhere else select() would end at descriptor 1024.
        self._poll = select.poll() if hasattr(select, "poll") else None
        self.idle_since = 0.0

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def open(self, seconds: float = CONNECT_SECONDS) -> None:
        """Connect, with TLS where a context was given.

        Args:
            seconds: how long each step of it may take.

        Raises:
            NoAnswer: nobody listens there, or whoever does is not trusted.
        """
        try:
            plain = self._socket = socket.create_connection((self._host, self._port), seconds)
            # A request is one write: Nagle's algorithm could only hold back the end of a large one (40 ms).
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                # The handshake waits for the other side: the socket is known before it, so that `wake` ends that too.
                secured = self._socket = self._context.wrap_socket(plain, server_hostname=self._host, do_handshake_on_connect=False)
                secured.do_handshake()
        except (OSError, ValueError) as error:
            self.close()
            trouble = Trouble.UNTRUSTED if self._context is not None and _is_tls_error(error) else Trouble.NOBODY
            raise NoAnswer(trouble, error) from error
        if self._poll is not None:
            self._poll.register(self._socket, select.POLLIN)

    def is_stale(self) -> bool:
        """Whether the other side has closed an idle connection, or has said something that nobody asked for."""
        if self._poll is not None:
            return bool(self._poll.poll(0))
        assert self._socket is not None
        return bool(select.select([self._socket], [], [], 0)[0])

    def ask(self, request: HttpRequest, head: bytes) -> Answer:
        """Send the request, and read the head of its answer.

        Raises:
            NoAnswer: it was cut, or none came in time.
        """
        assert self._socket is not None
        with _as_trouble():
            refusal = self._send(head, request.body or b"", request.limited(max(WRITE_SECONDS, request.read_seconds)))
            self._socket.settimeout(request.limited(request.read_seconds))
            try:
                return self._read_head(request)
            except ConnectionError as error:
                raise refusal or error from None

    def _send(self, head: bytes, body: bytes | FilePart, seconds: float) -> OSError | None:
        """The error that sending ended with, if any: a server may answer and close before it has read all (413)."""
        assert self._socket is not None
        self._socket.settimeout(seconds)
        try:
            if isinstance(body, FilePart):
                self._socket.sendall(head)
                body.file.seek(body.offset)  # TLS begins where the file stands if it is to begin at 0
                body.check(self._socket.sendfile(body.file, body.offset, body.size))
            elif len(body) <= READ_BYTES:
                self._socket.sendall(head + body)
            else:
                self._socket.sendall(head)
                with memoryview(body) as view:
                    for start in range(0, len(view), WRITE_BYTES):
                        self._socket.sendall(view[start : start + WRITE_BYTES])
        except TimeoutError:
            raise
        except OSError as error:
            return error
        return None

    def _read_head(self, request: HttpRequest) -> Answer:
        receive = self._reader(request)
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0 and len(data) < HEAD_BYTES:
            more = receive(READ_BYTES)
            if not more:
                raise ConnectionResetError(
                    "The server closed the connection without an answer." if not data else "It was cut in an answer."
                )
            data += more
        return _plain_answer(receive, data, end, request.method) or _any_answer(receive, data, request.method)

    def _reader(self, request: HttpRequest) -> Receive:
        one = self._socket
        assert one is not None
        if request.ends_at is None:
            return one.recv

        def receive(size: int) -> bytes:
            # What is left shrinks with every piece: one that sends a byte now and then must not hold the caller for long.
            one.settimeout(request.limited(request.read_seconds))
            return one.recv(size)

        return receive

    def wake(self) -> None:
        """End a read or write that another thread waits in."""
        if self._socket is not None:
            wake(self._socket)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


class Answer:
    """The head of an answer; its body is read from the connection.

    Args:
        read: `read(size)`: at most so many bytes of the body, empty at its end.
        keeps: whether the connection can be used again once the body is read.
    """

    def __init__(self, status: int, headers: dict[str, str], read: Callable[[int], bytes], keeps: Callable[[], bool]) -> None:
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

    def pieces(self, size: int) -> Iterator[bytes]:
        """The body in pieces of at most this size.

        Raises:
            NoAnswer: it was cut, or went silent.
        """
        with _as_trouble():
            while piece := self._read(size):
                yield piece


@contextlib.contextmanager
def _as_trouble() -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise NoAnswer(Trouble.LATE, error) from error
    except (OSError, ValueError) as error:
        # TLS that is closed under a reader complains with ValueError.
        raise NoAnswer(Trouble.CUT, error) from error


def _is_tls_error(error: BaseException) -> bool:
    import ssl

    return isinstance(error, ssl.SSLError)


def _plain_answer(receive: Receive, data: bytes, end: int, method: str) -> Answer | None:
    """An HTTP/1.1 answer that names its length; None for every other shape."""
    head = data[: max(end, 0)]
    if head[:9] != b"HTTP/1.1 " or not head[9:12].isdigit() or head[9:10] == b"1" or b"\r\n " in head or b"\r\n\t" in head:
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

    def read(size: int) -> bytes:
        nonlocal rest, left
        if rest and left:
            piece, rest = rest[:left], rest[left:]
        elif left:
            piece = receive(min(size, left))
            if not piece:
                raise ConnectionResetError(f"It was cut in an answer, {left} bytes before its end.")
        else:
            return b""
        left -= len(piece)
        return piece

    closes = "close" in headers.get("connection", "").lower()
    return Answer(int(head[9:12]), headers, read, lambda: not closes and not left and not rest)


def _any_answer(receive: Receive, data: bytes, method: str) -> Answer:
    """Whatever else HTTP allows: in chunks, up to the end of the connection, HTTP/1.0, after an interim answer."""
    import http.client

    class Replayed:
        """What HTTPResponse takes of a socket, beginning with what was read of it already."""

        def makefile(self, *_: Any) -> io.BufferedReader:
            return io.BufferedReader(_Replay(data, receive), READ_BYTES)

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

    def __init__(self, data: bytes, receive: Receive) -> None:
        self._data = data
        self._receive = receive

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data, self._data = self._data or self._receive(len(buffer)), b""
        piece, self._data = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)
