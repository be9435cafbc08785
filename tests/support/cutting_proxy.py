"""A proxy between a worker and a server that spoils exchanges where a test says so, to the byte and never by the clock."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from support.raw_server import RawServer, plain_answer, raw_server, read_request, reset


@dataclass(frozen=True)
class Spoil:
    """What becomes of one exchange.

    Args:
        passed: how many bytes of the answer are let through; None: the server's answer is not waited for.
        then: "reset" and "close" end both connections; "silence" keeps them open and says nothing more.
        instead: an answer of the proxy's own.
    """

    passed: Callable[[bytes], int] | None = None
    then: str = "reset"
    instead: bytes | None = None


def gateway(status: str) -> Spoil:
    """As a proxy that has lost patience with the server, or lost the server."""
    return Spoil(instead=plain_answer(b"<html>the server is away</html>", status=status), then="close")


class CuttingProxy:
    """Carries exchanges one by one, each of its client's connections on one of its own to the server.

    Args:
        port: the server's, on loopback.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._rules: list[tuple[bytes, Spoil]] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.spoilt = threading.Semaphore(0)
        """One more for each exchange that was spoilt."""
        self.forwarded = threading.Semaphore(0)
        """One more for each request that the server has been sent."""

    def spoil_next(self, path: bytes, spoil: Spoil) -> None:
        """Spoil the next exchange whose request has this in its first line."""
        with self._lock:
            self._rules.append((path, spoil))

    def serve(self, client: socket.socket, _: int) -> None:
        with socket.create_connection(("127.0.0.1", self._port)) as server:
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while request := read_request(client):
                spoil = self._take(request.split(b"\r\n")[0])
                server.sendall(request)
                self.forwarded.release()
                if spoil is None:
                    client.sendall(_read_answer(server))
                    continue
                if spoil.passed is not None:
                    answer = _read_answer(server)
                    client.sendall(answer[: spoil.passed(answer)])
                elif spoil.instead is not None:
                    client.sendall(spoil.instead)
                self.spoilt.release()
                if spoil.then == "silence":
                    self._ended.wait(60)
                elif spoil.then == "reset":
                    reset(client)
                return

    def _take(self, first_line: bytes) -> Spoil | None:
        with self._lock:
            for rule in self._rules:
                if rule[0] in first_line:
                    self._rules.remove(rule)
                    return rule[1]
        return None


def _read_answer(server: socket.socket) -> bytes:
    answer = read_request(server)  # an answer that names its length has a request's shape
    if not answer:
        raise ConnectionResetError("the server has gone")
    return answer


@contextlib.contextmanager
def cutting_proxy(port: int) -> Iterator[tuple[CuttingProxy, RawServer]]:
    """A proxy before the server on this port, and the socket server that it is."""
    proxy = CuttingProxy(port)
    with raw_server(proxy.serve) as server:
        try:
            yield proxy, server
        finally:
            proxy._ended.set()
