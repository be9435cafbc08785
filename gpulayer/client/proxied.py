"""Exchanges through httpx: by the proxies that the environment names, and to addresses that want more than a connection.

Imported only where it is needed: httpx takes longer to import than a job takes to start.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx

from gpulayer.client.exchange import (
    CLOSE_SECONDS,
    CONNECT_SECONDS,
    KEEPALIVE_SECONDS,
    KEPT_CONNECTIONS,
    STREAM_BYTES,
    WRITE_SECONDS,
    ExchangeClosed,
    FilePart,
    HttpAnswer,
    HttpRequest,
    HttpStream,
    NoAnswer,
    Trouble,
    causes,
    wake,
)

if TYPE_CHECKING:
    import socket
    import ssl


class ProxiedExchange:
    """An httpx client for one server.

    Args:
        root: the server's address without a path: "http://host:8888".
        context: for TLS, with the server and with a proxy.
        trust_env: whether the environment's proxies are used.
    """

    def __init__(self, root: str, context: ssl.SSLContext, *, trust_env: bool) -> None:
        self._root = root
        self._closing = threading.Event()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._sockets_lock = threading.Lock()
        self._in_flight = 0
        self._none_in_flight = threading.Condition()
        self._client = httpx.Client(
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS, keepalive_expiry=KEEPALIVE_SECONDS),
            follow_redirects=False,
            verify=context,
            trust_env=trust_env,
        )

    def ask(self, request: HttpRequest, *, fresh: bool = False) -> HttpAnswer:  # noqa: ARG002 (its pool has no such choice)
        with self._as_ours():
            response = self._client.request(**self._arguments(request))
            return HttpAnswer(response.status_code, response.headers, response.content)

    @contextlib.contextmanager
    def stream(self, request: HttpRequest) -> Iterator[HttpStream]:
        with self._as_ours(), self._client.stream(**self._arguments(request)) as response:
            yield HttpStream(response.status_code, response.headers, response.iter_bytes(STREAM_BYTES))

    def close(self) -> None:
        self._closing.set()
        with self._sockets_lock:
            sockets = list(self._sockets)
        for one in sockets:
            wake(one)
        with self._none_in_flight:
            # A pool that is closed under a request forgets the connection that is being made for it.
            self._none_in_flight.wait_for(lambda: self._in_flight == 0, timeout=CLOSE_SECONDS)
        self._client.close()

    def _arguments(self, request: HttpRequest) -> dict[str, Any]:
        steps = {"connect": CONNECT_SECONDS, "read": request.read_seconds, "write": max(WRITE_SECONDS, request.read_seconds)}
        timeout = {**{step: request.limited(seconds) for step, seconds in steps.items()}, "pool": None}
        return {
            "method": request.method,
            "url": self._root + request.target,
            "headers": dict(request.headers),
            "content": request.body.read() if isinstance(request.body, FilePart) else request.body,
            "extensions": {"timeout": timeout, "trace": self._note_connection},
        }

    def _note_connection(self, event: str, info: dict[str, Any]) -> None:
        """Called by httpcore at every step of a request: remembers sockets, so that close() can wake their readers."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete", "proxy_http.start_tls.complete"):
            one = info["return_value"].get_extra_info("socket")
            with self._sockets_lock:
                self._sockets.add(one)
            if self._closing.is_set():
                wake(one)

    @contextlib.contextmanager
    def _as_ours(self) -> Iterator[None]:
        with self._none_in_flight:
            if self._closing.is_set():
                raise ExchangeClosed
            self._in_flight += 1
        try:
            yield
        except httpx.TransportError as error:
            if self._closing.is_set():
                raise ExchangeClosed from None
            raise NoAnswer(_trouble(error), error) from error
        except (RuntimeError, ValueError, OSError):
            # httpx and ssl complain in several ways about a client that was closed under a request.
            if self._closing.is_set():
                raise ExchangeClosed from None
            raise
        finally:
            with self._none_in_flight:
                self._in_flight -= 1
                self._none_in_flight.notify_all()


def _trouble(error: httpx.TransportError) -> Trouble:
    import ssl

    if isinstance(error, httpx.ReadTimeout):
        return Trouble.LATE
    if not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return Trouble.CUT
    # httpx has one class for a port on which nobody listens and for a server whose certificate it does not trust.
    return Trouble.UNTRUSTED if any(isinstance(cause, ssl.SSLError) for cause in causes(error)) else Trouble.NOBODY
