"""The transport to a control plane over HTTP/1.1 keep-alive, as a Jupyter server with the extension hosts it.

What is asked, with which credential, what the answer means and when it is asked again. How bytes travel lies in `direct`
and, through proxies, in `proxied`.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, urlencode

import msgspec

from gpulayer._version import __version__
from gpulayer.addresses import is_loopback
from gpulayer.calls import API_PREFIX, ARTIFACT_PATH, Call
from gpulayer.client.answers import GATEWAY_STATUSES, read_answer, read_error
from gpulayer.client.artifact_file import send_parts, write_artifact
from gpulayer.client.direct import DirectExchange
from gpulayer.client.exchange import Exchange, ExchangeClosed, FilePart, HttpAnswer, HttpRequest, NoAnswer, Trouble
from gpulayer.client.held_calls import pause_after
from gpulayer.client.server_address import split_address
from gpulayer.errors import Interrupted, InvalidSpec, ServerUnreachable
from gpulayer.protocol import Digest, Message, Registered

ANSWER_SECONDS = 10.0
"""How long after `wait` an answer is still expected; a proxy that swallows held calls in silence is noticed by it."""
PART_SECONDS = 60.0
"""How long an answer to a part of an artifact may take: the last one waits for the digest of the whole."""
STREAM_SECONDS = 30.0
"""How long the next piece of an artifact may take to come."""
ASK_FIRST_BYTES = 64 * 1024
"""From this size on a file is sent only once the server has said that it lacks it."""
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
        parts, port = split_address(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidSpec("An address starts with http:// or https:// and names a host.", asked=f"url={url!r}")
        if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
            raise InvalidSpec("A token is made of printable ASCII characters, without spaces.", fix="Was all of it copied, and no more?")
        self.url = url.rstrip("/") + "/"
        self.description = description or f"control plane at {self.url}"
        self._token = token
        self._base = quote(parts.path.rstrip("/"), safe="/%:=&~+!$,;'@()*") + API_PREFIX
        self._closing = threading.Event()
        self._exchange = _exchange_for(parts, port)

    @property
    def token(self) -> str | None:
        return self._token

    def call(self, call: Call, request: Message, *, timeout: float | None = None) -> Any:
        fields = {name: getattr(request, name) for name in request.__struct_fields__}
        path = call.path
        if "{" in path:
            path = path.format(**{name: _path_part(fields.pop(name)) for name in call.path_fields})
        wait = fields.get("wait", 0.0)
        deadline = timeout if timeout is not None else wait + ANSWER_SECONDS
        body = msgspec.json.encode(fields) if call.method == "POST" else None
        query = {name: _query_value(value) for name, value in fields.items() if value is not None} if body is None else None
        repeat = call.name not in CALLS_NOT_REPEATED
        started = time.monotonic()
        ends_at = started + timeout if timeout is not None else None
        response = self._send(call.method, path, query=query, body=body, deadline=deadline, ends_at=ends_at, repeat=repeat)
        answer = read_answer(call, response.status, response.headers, response.content, url=self.url)
        if wait > 0:
            pause = pause_after(request, answer, time.monotonic() - started)
            if pause and self._closing.wait(pause):
                raise self._interrupted()
        if isinstance(answer, Registered) and answer.token:
            self._token = answer.token
        return answer

    def has_artifact(self, sha256: Digest) -> bool:
        response = self._send("HEAD", ARTIFACT_PATH.format(sha256=_path_part(sha256)))
        if response.status in (200, 404):
            return response.status == 200
        raise read_error(response.status, response.headers, response.content, url=self.url)

    def put_artifact(self, path: Path, sha256: Digest) -> None:
        # Asking first takes as long as sending a small file, which may be sent twice.
        if path.stat().st_size >= ASK_FIRST_BYTES and self.has_artifact(sha256):
            return
        where = ARTIFACT_PATH.format(sha256=_path_part(sha256))

        def send(part: FilePart, total: int) -> None:
            query = {"offset": str(part.offset), "total": str(total)}
            # A small one goes out in one write with its head.
            body = part if len(part) >= ASK_FIRST_BYTES else part.read()
            response = self._send("PUT", where, query=query, body=body, deadline=PART_SECONDS)
            if response.status != 200:
                raise read_error(response.status, response.headers, response.content, url=self.url)

        send_parts(path, send)

    def get_artifact(self, sha256: Digest, destination: Path) -> None:
        request = self._request("GET", ARTIFACT_PATH.format(sha256=_path_part(sha256)), None, None, STREAM_SECONDS)
        try:
            with self._exchange.stream(request) as response:
                if response.status != 200:
                    raise read_error(response.status, response.headers, b"".join(response.pieces), url=self.url)
                write_artifact(destination, sha256, response.pieces)
        except NoAnswer as error:
            raise self._unreachable(request, error) from error
        except ExchangeClosed:
            raise self._interrupted() from None

    def close(self) -> None:
        """Give connections back; a thread that waits for an answer gets `Interrupted`."""
        self._closing.set()
        self._exchange.close()

    # ---- one request

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: bytes | FilePart | None = None,
        deadline: float = ANSWER_SECONDS,
        ends_at: float | None = None,
        repeat: bool = True,
    ) -> HttpAnswer:
        """Send one request; where `repeat` allows it, once more on a fresh connection when the first was cut, if there is time."""
        request = self._request(method, path, query, body, deadline, ends_at)
        try:
            try:
                response = self._exchange.ask(request)
                if response.status not in GATEWAY_STATUSES or not repeat or request.is_over() or _is_ours(response):
                    return response
            except NoAnswer as error:
                if not repeat or request.is_over() or not _was_sent(error):
                    raise
            return self._exchange.ask(request, fresh=True)
        except NoAnswer as error:
            raise self._unreachable(request, error) from error
        except ExchangeClosed:
            raise self._interrupted() from None

    def _request(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None,
        body: bytes | FilePart | None,
        deadline: float,
        ends_at: float | None = None,
    ) -> HttpRequest:
        headers = {"User-Agent": f"gpulayer/{__version__}"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = "application/octet-stream" if method == "PUT" else "application/json"
        target = f"{self._base}{path}?{urlencode(query)}" if query else self._base + path
        return HttpRequest(method, target, headers, body, deadline, ends_at)

    def _interrupted(self) -> Interrupted:
        return Interrupted("The connection was closed during the call.", asked=self.url)

    def _unreachable(self, request: HttpRequest, error: NoAnswer) -> ServerUnreachable:
        fix = "Is the server running, and the address right? `gpulayer doctor` shows what is found."
        if error.trouble is Trouble.UNTRUSTED:
            fix = "If the certificate is the server's own, name it, or who signed it, in SSL_CERT_FILE."
        return ServerUnreachable(
            f"{_WHAT[error.trouble]} at {self.url}.",
            asked=f"{request.method} {request.target.partition('?')[0]}",
            found=str(error),
            fix=fix,
            details={"trouble": error.trouble.value, "cut": _was_sent(error), "refused": error.was_refused},
        )


_WHAT = {
    Trouble.NOBODY: "Nobody answers",
    Trouble.UNTRUSTED: "No trusted connection could be made",
    Trouble.CUT: "The connection was cut",
    Trouble.LATE: "No answer came in time",
}


def _exchange_for(parts: SplitResult, port: int | None) -> Exchange:
    """Connections of our own, wherever nothing stands between the server and us."""
    assert parts.hostname is not None
    # A proxy from the environment must not be asked for this machine's own servers.
    proxied = not is_loopback(parts.hostname) and _proxies_may_apply(parts.scheme)
    odd = "@" in parts.netloc or "%" in parts.hostname or not parts.hostname.isascii()
    if not proxied and not odd and parts.scheme == "http":
        return DirectExchange(parts.hostname, port or 80, None)
    import ssl

    if not proxied and not odd:
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        return DirectExchange(parts.hostname, port or 443, context)
    from gpulayer.client.proxied import ProxiedExchange

    return ProxiedExchange(f"{parts.scheme}://{parts.netloc}", ssl.create_default_context(), trust_env=proxied)


def _proxies_may_apply(scheme: str) -> bool:
    """Whether the environment, or the system's settings, name a proxy for this scheme; httpx then reads what is excepted."""
    from urllib.request import getproxies

    proxies = getproxies()
    return scheme in proxies or "all" in proxies


def _was_sent(error: NoAnswer) -> bool:
    """Whether the server may have got the request."""
    return error.trouble in (Trouble.CUT, Trouble.LATE)


def _is_ours(response: HttpAnswer) -> bool:
    return b'"error"' in response.content and b'"code"' in response.content


def _path_part(value: Any) -> str:
    text = str(value)
    if not text or not all(letter.isalnum() or letter in "._-" for letter in text) or text in (".", ".."):
        raise InvalidSpec("An id is made of letters, digits, '.', '_' and '-'.", asked=repr(text))
    return text if text.isascii() else quote(text)


def _query_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
