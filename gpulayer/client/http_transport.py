"""The transport to a control plane over HTTP/1.1 keep-alive, as a Jupyter server with the extension hosts it."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from gpulayer._version import __version__
from gpulayer.addresses import is_loopback
from gpulayer.calls import API_PREFIX, ARTIFACT_PATH, Call
from gpulayer.client.answers import GATEWAY_STATUSES, read_answer, read_error
from gpulayer.client.artifact_file import send_parts, write_artifact
from gpulayer.client.held_calls import pause_after
from gpulayer.errors import Interrupted, InvalidSpec, ServerUnreachable
from gpulayer.protocol import Digest, Message, Registered

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
"""How long after `wait` an answer is still expected; a proxy that swallows held calls in silence is noticed by it."""
PART_SECONDS = 60.0
"""How long an answer to a part of an artifact may take: the last one waits for the digest of the whole."""
ASK_FIRST_BYTES = 64 * 1024
"""From this size on a file is sent only once the server has said that it lacks it."""
CLOSE_SECONDS = 2.0
"""How long close() waits for calls of other threads to notice it; they do at once, unless a name is being looked up."""
KEEPALIVE_SECONDS = 55.0
"""Idle connections are dropped by ourselves before common proxies do it (60 s)."""
CALLS_NOT_REPEATED = frozenset({"start_local_workers", "create_join_token", "register_worker"})
"""Everything else may be sent twice: submit has its idempotency key, the worker protocol is fenced and keyed."""


class HttpTransport:
    """Calls on a control plane over HTTP.

    Args:
        url: the server's root, base_url included: "http://127.0.0.1:8888/".
        token: bearer token; None only where the server asks for none.
        description: where it leads, for people.
    """

    def __init__(self, url: str, token: str | None, *, description: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidSpec("An address starts with http:// or https:// and names a host.", asked=f"url={url!r}")
        self.url = url.rstrip("/") + "/"
        self.description = description or f"control plane at {self.url}"
        self._token = token
        self._api = self.url.rstrip("/") + API_PREFIX
        self._closing = threading.Event()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._sockets_lock = threading.Lock()
        self._in_flight = 0
        self._none_in_flight = threading.Condition()
        self._client = httpx.Client(
            headers={"User-Agent": f"gpulayer/{__version__}"},
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=KEEPALIVE_SECONDS),
            follow_redirects=False,
            # Loading this machine's certificates takes some 20 ms; without TLS an empty context, which trusts nobody, does.
            verify=ssl.create_default_context() if parts.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            # A proxy from the environment must not be asked for this machine's own servers.
            trust_env=not is_loopback(parts.hostname),
        )

    @property
    def token(self) -> str | None:
        return self._token

    def call(self, call: Call, request: Message, *, timeout: float | None = None) -> Any:
        fields = msgspec.structs.asdict(request)
        path = call.path.format(**{name: _path_part(fields.pop(name)) for name in call.path_fields})
        wait = fields.get("wait", 0.0)
        deadline = timeout if timeout is not None else wait + ANSWER_SECONDS
        body = msgspec.json.encode(fields) if call.method == "POST" else None
        query = {name: _query_value(value) for name, value in fields.items() if value is not None} if body is None else None
        repeat = call.name not in CALLS_NOT_REPEATED
        started = time.monotonic()
        response = self._send(call.method, path, query=query, body=body, deadline=deadline, repeat=repeat)
        answer = read_answer(call, response.status_code, response.headers, response.content, url=self.url)
        pause = pause_after(request, answer, time.monotonic() - started)
        if pause and self._closing.wait(pause):
            raise self._interrupted()
        if isinstance(answer, Registered) and answer.token:
            self._token = answer.token
        return answer

    def has_artifact(self, sha256: Digest) -> bool:
        response = self._send("HEAD", ARTIFACT_PATH.format(sha256=_path_part(sha256)))
        if response.status_code in (200, 404):
            return response.status_code == 200
        raise read_error(response.status_code, response.headers, response.content, url=self.url)

    def put_artifact(self, path: Path, sha256: Digest) -> None:
        # Asking first takes as long as sending a small file, which may be sent twice.
        if path.stat().st_size >= ASK_FIRST_BYTES and self.has_artifact(sha256):
            return
        where = ARTIFACT_PATH.format(sha256=_path_part(sha256))

        def send(data: bytes, offset: int, total: int) -> None:
            query = {"offset": str(offset), "total": str(total)}
            response = self._send("PUT", where, query=query, body=data, deadline=PART_SECONDS)
            if response.status_code != 200:
                raise read_error(response.status_code, response.headers, response.content, url=self.url)

        send_parts(path, send)

    def get_artifact(self, sha256: Digest, destination: Path) -> None:
        where = self._api + ARTIFACT_PATH.format(sha256=_path_part(sha256))
        with (
            self._as_our_errors("GET", where),
            self._client.stream("GET", where, headers=self._headers(), extensions=self._extensions(30.0)) as response,
        ):
            if response.status_code != 200:
                response.read()
                raise read_error(response.status_code, response.headers, response.content, url=self.url)
            write_artifact(destination, sha256, response.iter_bytes(1 << 20))

    def close(self) -> None:
        """Give connections back; a thread that waits for an answer gets `Interrupted`."""
        self._closing.set()
        with self._sockets_lock:
            sockets = list(self._sockets)
        for one in sockets:
            _wake_reader(one)
        with self._none_in_flight:
            # A pool that is closed under a request forgets the connection that is being made for it.
            self._none_in_flight.wait_for(lambda: self._in_flight == 0, timeout=CLOSE_SECONDS)
        self._client.close()

    # ---- one request

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: bytes | None = None,
        deadline: float = ANSWER_SECONDS,
        repeat: bool = True,
    ) -> httpx.Response:
        """Send one request; where `repeat` allows it, once more on a fresh connection when the first was cut."""
        try:
            response = self._send_once(method, path, query, body, deadline)
            if response.status_code not in GATEWAY_STATUSES or not repeat or _is_ours(response):
                return response
        except ServerUnreachable as error:
            if not repeat or not error.details.get("cut"):
                raise
        return self._send_once(method, path, query, body, deadline)

    def _send_once(self, method: str, path: str, query: dict[str, str] | None, body: bytes | None, deadline: float) -> httpx.Response:
        where = self._api + path
        headers = self._headers()
        if body is not None:
            headers["Content-Type"] = "application/octet-stream" if method == "PUT" else "application/json"
        with self._as_our_errors(method, where):
            return self._client.request(method, where, params=query, content=body, headers=headers, extensions=self._extensions(deadline))

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _extensions(self, read_seconds: float) -> dict[str, Any]:
        timeout = {"connect": CONNECT_SECONDS, "read": read_seconds, "write": max(30.0, read_seconds), "pool": None}
        return {"timeout": timeout, "trace": self._note_connection}

    def _note_connection(self, event: str, info: dict[str, Any]) -> None:
        """Called by httpcore at every step of a request: remembers sockets, so that close() can wake their readers."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete", "proxy_http.start_tls.complete"):
            one = info["return_value"].get_extra_info("socket")
            with self._sockets_lock:
                self._sockets.add(one)
            if self._closing.is_set():
                _wake_reader(one)

    @contextlib.contextmanager
    def _as_our_errors(self, method: str, where: str) -> Iterator[None]:
        with self._none_in_flight:
            if self._closing.is_set():
                raise self._interrupted()
            self._in_flight += 1
        try:
            yield
        except httpx.TransportError as error:
            if self._closing.is_set():
                raise self._interrupted() from None
            raise self._unreachable(method, where, error) from error
        except (RuntimeError, ValueError, OSError):
            # httpx and ssl complain in several ways about a client that was closed under a request.
            if self._closing.is_set():
                raise self._interrupted() from None
            raise
        finally:
            with self._none_in_flight:
                self._in_flight -= 1
                self._none_in_flight.notify_all()

    def _interrupted(self) -> Interrupted:
        return Interrupted("The connection was closed during the call.", asked=self.url)

    def _unreachable(self, method: str, where: str, error: httpx.TransportError) -> ServerUnreachable:
        never_connected = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
        causes = list(_causes(error))
        what = "Nobody answers" if never_connected else "The connection was cut"
        fix = "Is the server running, and the address right? `gpulayer doctor` shows what is found."
        if isinstance(error, httpx.ReadTimeout):
            what = "No answer came in time"
        elif never_connected and any(isinstance(cause, ssl.SSLError) for cause in causes):
            # httpx has one class for a port on which nobody listens and for a server whose certificate it does not trust.
            what = "No trusted connection could be made"
            fix = "If the certificate is the server's own, name it, or who signed it, in SSL_CERT_FILE."
        return ServerUnreachable(
            f"{what} at {self.url}.",
            asked=f"{method} {urlsplit(where).path}",
            found=str(error) or type(error).__name__,
            fix=fix,
            details={
                "cut": not never_connected,
                "refused": any(isinstance(cause, OSError) and cause.errno == errno.ECONNREFUSED for cause in causes),
            },
        )


def _wake_reader(one: socket.socket) -> None:
    """End a read that another thread waits in: unlike a close(), a shutdown() wakes it."""
    with contextlib.suppress(OSError, ValueError):
        one.shutdown(socket.SHUT_RDWR)


def _is_ours(response: httpx.Response) -> bool:
    return b'"error"' in response.content and b'"code"' in response.content


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and those that it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _path_part(value: Any) -> str:
    text = str(value)
    if not text or not all(letter.isalnum() or letter in "._-" for letter in text) or text in (".", ".."):
        raise InvalidSpec("An id is made of letters, digits, '.', '_' and '-'.", asked=repr(text))
    return text


def _query_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
