"""A TCP server that answers with the bytes a test says, connection by connection, for what no well-behaved HTTP server does."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

CERTIFICATE = Path(__file__).parent / "tls" / "localhost.pem"
"""A certificate for localhost and 127.0.0.1 that signs itself, with its key; of use to nobody else."""

Serve = Callable[[socket.socket, int], None]


def read_request(connection: socket.socket) -> bytes:
    """One request, head and body; empty where the other side has gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        more = connection.recv(65536)
        if not more:
            return b""
        body += more
    return head + b"\r\n\r\n" + body


def plain_answer(content: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """An answer as tornado writes it."""
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *headers, "", ""]).encode() + content


def reset(connection: socket.socket) -> None:
    """Close with RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class RawServer:
    """Listens on a free loopback port.

    Args:
        serve: called for each connection in a thread of its own, with the connection's number from 0.
        family: AF_INET6 for [::1].
        tls: speak TLS with `CERTIFICATE`.
    """

    def __init__(self, serve: Serve, *, family: socket.AddressFamily = socket.AF_INET, tls: bool = False) -> None:
        self.host = "::1" if family is socket.AF_INET6 else "127.0.0.1"
        self.connections: list[socket.socket] = []
        self._serve = serve
        self._context: ssl.SSLContext | None = None
        if tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(CERTIFICATE)
        self._listener = socket.socket(family)
        self._listener.bind((self.host, 0))
        self._listener.listen()
        self.port = int(self._listener.getsockname()[1])
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self._context else ''}://{host}:{self.port}/"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(10)
        for connection in self.connections:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for connection in self.connections:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            self.connections.append(connection)
            self._start(self._handle, connection, len(self.connections) - 1)

    def _handle(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError):
            if self._context is not None:
                connection = self.connections[number] = self._context.wrap_socket(connection, server_side=True)
            self._serve(connection, number)
            connection.close()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()


@contextlib.contextmanager
def raw_server(serve: Serve, *, family: socket.AddressFamily = socket.AF_INET, tls: bool = False) -> Iterator[RawServer]:
    """A `RawServer` for the length of a block."""
    server = RawServer(serve, family=family, tls=tls)
    try:
        yield server
    finally:
        server.close()
