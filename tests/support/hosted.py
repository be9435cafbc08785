"""The server extension as it runs in the test's own process, and a client for it (see tests/gpulayer_server/conftest.py)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any

from gpulayer_server.hosting import ControlPlaneHost
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse

NO_TOKEN = "-"


async def leave(writer: asyncio.StreamWriter, *, abruptly: bool = False) -> None:
    """Close a connection, with a reset if `abruptly`, and return once it is closed."""
    if abruptly:
        writer.transport.abort()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@dataclass
class Hosted:
    """The extension as it runs in this process, and a client for it."""

    serverapp: Any
    host: ControlPlaneHost
    port: int
    base_url: str
    jupyter_token: str

    @property
    def client_token(self) -> str:
        assert self.host.connection_file is not None
        return self.host.connection_file.token

    async def fetch(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout: float = 20.0,
    ) -> HTTPResponse:
        """One request below the base URL, with the client token unless another is named; never raises for a status."""
        headers = dict(headers or {})
        if token != NO_TOKEN:
            headers.setdefault("Authorization", f"Bearer {token or self.client_token}")
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        request = HTTPRequest(
            f"http://127.0.0.1:{self.port}{self.base_url}{path}",
            method=method,
            headers=headers,
            body=content,
            allow_nonstandard_methods=True,
            follow_redirects=False,
            request_timeout=timeout,
        )
        return await AsyncHTTPClient(force_instance=True, defaults={}, max_body_size=1 << 30).fetch(request, raise_error=False)

    async def call(self, method: str, path: str, **options: Any) -> Any:
        """A request that must succeed, decoded."""
        response = await self.fetch(method, "gpulayer/v1/" + path, **options)
        assert response.code == 200, (response.code, response.body)
        return json.loads(response.body)

    async def hold(self, path: str, token: str | None = None) -> tuple[asyncio.StreamWriter, asyncio.StreamReader, asyncio.Task[Any]]:
        """Send a GET on a connection of its own and return once it is held: the connection and the waiting task."""
        before = set(self.host.held_calls._tasks)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(
            f"GET {self.base_url}gpulayer/v1/{path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Authorization: Bearer {token or self.client_token}\r\n\r\n".encode()
        )
        await writer.drain()
        async with asyncio.timeout(5):
            while not (held := self.host.held_calls._tasks - before):
                await asyncio.sleep(0.005)
        (task,) = held
        return writer, reader, task

    async def last_event(self) -> int:
        return int((await self.call("GET", "events?limit=100000"))["next"])

    async def worker(self, name: str = "w", **fields: Any) -> tuple[str, dict[str, Any]]:
        """Register a worker with one cpu device: its token, and `worker_id` and `boot` as its messages carry them."""
        join = (await self.call("POST", "tokens/join", body={}))["token"]
        device = {"id": "cpu:0", "accelerator": "cpu", "index": 0}
        message = {
            "boot": f"boot-{name}",
            "protocol": 1,
            "version": "0",
            "name": name,
            "host": f"host-{name}",
            "boot_id": f"boot-id-{name}",
            "address": "127.0.0.1",
            "python": "3",
            "devices": [device],
            "frameworks": {},
            **fields,
        }
        registered = await self.call("POST", "workers", token=join, body=message)
        return registered["token"], {"worker_id": registered["worker_id"], "boot": message["boot"]}
