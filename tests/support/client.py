"""What the client's tests share: a small HTTP server that answers as a test says, and messages to answer with."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from gpulayer.protocol import Health, JobId, JobStatus, LogChunk
from gpulayer.spec import CommandJob
from gpulayer.states import JobState


@dataclass
class Request:
    """One request as the scripted server received it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """What it answers; `cut` closes the connection instead."""

    status: int = 200
    body: bytes | Any = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False

    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else msgspec.json.encode(self.body)


class ScriptedServer:
    """An HTTP/1.1 server with keep-alive on a free loopback port.

    Args:
        answer: called for each request, in a thread of its own connection; it may block.
    """

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Nagle's algorithm would hold the body back for 40 ms.
            disable_nagle_algorithm = True

            def setup(self) -> None:
                outer.connections += 1
                super().setup()

            def _any(self) -> None:
                where = urlsplit(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                length = int(self.headers.get("Content-Length") or 0)
                request = Request(
                    self.command,
                    where.path,
                    dict(parse_qsl(where.query)),
                    headers,
                    self.rfile.read(length),
                )
                outer.requests.append(request)
                reply = answer(request)
                if reply.cut:
                    self.close_connection = True
                    with contextlib.suppress(OSError):
                        self.connection.shutdown(socket.SHUT_RDWR)
                    return
                content = reply.content()
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self.send_response(reply.status)
                    for name, value in reply.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_HEAD = _any

            def log_message(self, *_: Any) -> None:
                pass  # not into the test's output

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


@contextlib.contextmanager
def scripted_server(answer: Callable[[Request], Answer]) -> Iterator[ScriptedServer]:
    """A `ScriptedServer` for the length of a block."""
    server = ScriptedServer(answer)
    try:
        yield server
    finally:
        server.close()


def free_port() -> int:
    """A loopback port on which nobody listens (at this moment)."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def health(**fields: Any) -> Health:
    return Health(**{"protocol": 1, "version": "0.1.0", "home_id": "h", "workers_alive": 0, "jobs_unfinished": 0, **fields})


def job_status(state: JobState = JobState.QUEUED, **fields: Any) -> JobStatus:
    known = {
        "job_id": JobId("j1"),
        "name": "train",
        "owner": "me",
        "spec": CommandJob(argv=("true",)),
        "state": state,
        "revision": 1,
        "attempt": 1,
        "accelerator": "cpu",
        "created_at": 1.0,
    }
    return JobStatus(**{**known, **fields})


def chunk(data: bytes, **fields: Any) -> LogChunk:
    known = {"attempt": 1, "node": 0, "rank": 0, "stream": "stdout", "offset": 0, "first_line": 0, "time": 1.0, "sequence": 1}
    return LogChunk(**{**known, **fields, "data": data})


def write_server_file(home: Path, url: str, **fields: Any) -> Path:
    """A file as the server extension leaves it, of a server that this process is, unless `fields` say otherwise."""
    content = {
        "id": f"s{len(list(home.glob('servers/*.json')))}",
        "url": url,
        "base_url": "/",
        "token": "file-token",
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started_at": time.time(),
        "home": str(home),
        "version": "0.1.0",
        "protocol": 1,
        **fields,
    }
    path = home / "servers" / f"{content['id']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path
