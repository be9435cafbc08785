"""One HTTP/1.1 connection to a server: a request goes out in one write, and its answer is read in as few reads as it takes.

What its answer looks like is `http_answer`'s matter. Used by one thread at a time, woken by any.
"""

from __future__ import annotations

import select
import socket
from typing import TYPE_CHECKING, Any

from gpulayer.client.exchange import CONNECT_SECONDS, WRITE_SECONDS, FilePart, HttpRequest, NoAnswer, Trouble, wake
from gpulayer.client.http_answer import READ_BYTES, Answer, any_answer, as_trouble, plain_answer

if TYPE_CHECKING:
    import ssl

HEAD_BYTES = 64 * 1024
"""A longer head is left to http.client, which has limits of its own."""
INTERIM_ANSWERS = 16
"""So many 1xx answers may come before the one that counts; http.client knows of 100 alone."""
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
        with as_trouble():
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
        assert self._socket is not None
        source = self._socket if request.ends_at is None else _Limited(self._socket, request)
        data = b""
        for _ in range(INTERIM_ANSWERS):
            while (end := data.find(b"\r\n\r\n")) < 0 and len(data) < HEAD_BYTES:
                more = source.recv(READ_BYTES)
                if not more:
                    raise ConnectionResetError(
                        "The server closed the connection without an answer." if not data else "It was cut in an answer."
                    )
                data += more
            # 101 is no answer to come: it is another protocol from there on.
            if end < 0 or data[:10] != b"HTTP/1.1 1" or data[9:12] == b"101":
                break
            data = data[end + 4 :]
        else:
            raise ConnectionResetError("Interim answers came, and no end of them.")
        return plain_answer(source, data, end, request.method) or any_answer(source, data, request.method)

    def wake(self) -> None:
        """End a read or write that another thread waits in."""
        if self._socket is not None:
            wake(self._socket)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


class _Limited:
    """A socket whose reads end with the request's time.

    What is left shrinks with every piece: one that sends a byte now and then must not hold the caller for long.
    """

    def __init__(self, one: socket.socket, request: HttpRequest) -> None:
        self._socket = one
        self._request = request

    def recv(self, size: int, /) -> bytes:
        self._limit()
        return self._socket.recv(size)

    def recv_into(self, buffer: Any, /) -> int:
        self._limit()
        return self._socket.recv_into(buffer)

    def _limit(self) -> None:
        self._socket.settimeout(self._request.limited(self._request.read_seconds))


def _is_tls_error(error: BaseException) -> bool:
    import ssl

    return isinstance(error, ssl.SSLError)
