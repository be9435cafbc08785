"""Exchanges on connections of our own, kept warm for the next one: what workers and clients use on every call (ADR-0032)."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulayer.client.connection import Connection
from gpulayer.client.exchange import (
    CLOSE_SECONDS,
    CONNECT_SECONDS,
    KEEPALIVE_SECONDS,
    KEPT_CONNECTIONS,
    STREAM_BYTES,
    ExchangeClosed,
    HttpAnswer,
    HttpRequest,
    HttpStream,
    NoAnswer,
)

if TYPE_CHECKING:
    import ssl


class DirectExchange:
    """A pool of connections to one server.

    Args:
        host: a name or an address, without brackets.
        context: for TLS; None without.
    """

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        self._host = host
        self._port = port
        self._context = context
        name = f"[{host}]" if ":" in host else host
        self._host_header = name if port == (80 if context is None else 443) else f"{name}:{port}"
        self._lock = threading.Lock()
        self._all_idle = threading.Condition(self._lock)
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._closed = False
        self._pid = os.getpid()

    def ask(self, request: HttpRequest, *, fresh: bool = False) -> HttpAnswer:
        with self._connection(request, fresh) as connection:
            answer = connection.ask(request, self._head(request))
            content = answer.content()
            keeps = answer.keeps
        self._end(connection, keeps)
        return HttpAnswer(answer.status, answer.headers, content)

    @contextlib.contextmanager
    def stream(self, request: HttpRequest) -> Iterator[HttpStream]:
        with self._connection(request, fresh=False) as connection:
            answer = connection.ask(request, self._head(request))
            yield HttpStream(answer.status, answer.headers, answer.pieces(STREAM_BYTES))
            keeps = answer.keeps
        self._end(connection, keeps)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for connection in self._busy:
                connection.wake()
            self._all_idle.wait_for(lambda: not self._busy, timeout=CLOSE_SECONDS)
        for connection in idle:
            connection.close()

    @contextlib.contextmanager
    def _connection(self, request: HttpRequest, fresh: bool) -> Iterator[Connection]:
        """A connection that is open; it is closed when the block is left by an error, the caller's Ctrl-C included."""
        connection = self._take(fresh)
        try:
            if not connection.is_open:
                connection.open(request.limited(CONNECT_SECONDS))
                if self._closed:
                    raise ExchangeClosed  # it was being made when `close` looked for whom to wake
            yield connection
        except BaseException as error:
            self._end(connection, keeps=False)
            if self._closed and isinstance(error, NoAnswer):
                raise ExchangeClosed from None
            raise

    def _take(self, fresh: bool) -> Connection:
        oldest = time.monotonic() - KEEPALIVE_SECONDS
        stale: list[Connection] = []
        with self._lock:
            if self._closed:
                raise ExchangeClosed
            if self._pid != os.getpid():
                # A fork shares its parent's connections, and would take the parent's answers from them.
                self._pid, self._idle, self._busy = os.getpid(), [], set()
            connection = None
            while self._idle and connection is None and not fresh:
                candidate = self._idle.pop()
                if candidate.idle_since < oldest or candidate.is_stale():
                    stale.append(candidate)
                else:
                    connection = candidate
            connection = connection or Connection(self._host, self._port, self._context)
            self._busy.add(connection)
        for one in stale:
            one.close()
        return connection

    def _end(self, connection: Connection, keeps: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            keeps = keeps and not self._closed and len(self._idle) < KEPT_CONNECTIONS
            if keeps:
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
            if self._closed:
                self._all_idle.notify_all()
        if not keeps:
            connection.close()

    def _head(self, request: HttpRequest) -> bytes:
        lines = [f"{request.method} {request.target} HTTP/1.1\r\nHost: {self._host_header}\r\nAccept-Encoding: identity"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        if request.body is not None:
            lines.append(f"Content-Length: {len(request.body)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
