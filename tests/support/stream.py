"""A tab's end of the stream on a server that runs in the test's process, and workers that print what a test says."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from support.hosted import NO_TOKEN, Hosted


class Tab:
    """One socket."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self.socket = socket
        self.sizes: list[int] = []

    async def say(self, message: Any) -> None:
        await self.socket.write_message(message if isinstance(message, str | bytes) else json.dumps(message))

    async def subscribe(self, number: int, kind: str, **to: Any) -> None:
        await self.say({"type": "subscribe", "id": number, "to": {"kind": kind, **to}})

    async def unsubscribe(self, number: int) -> None:
        await self.say({"type": "unsubscribe", "id": number})

    async def frame(self, seconds: float = 10.0) -> dict[str, Any]:
        """The next frame."""
        message = await asyncio.wait_for(asyncio.ensure_future(self.socket.read_message()), seconds)
        assert message is not None, f"closed: {self.socket.close_code} {self.socket.close_reason}"
        self.sizes.append(len(message))
        frame: dict[str, Any] = json.loads(message)
        return frame

    async def frame_of(self, number: int) -> dict[str, Any]:
        """The next frame of a subscription; those of others are passed over."""
        while (frame := await self.frame()).get("id") != number:
            pass
        return frame

    async def closed(self, seconds: float = 10.0) -> int | None:
        """Read until the server has closed it; the code."""
        async with asyncio.timeout(seconds):
            while await self.socket.read_message() is not None:
                pass
        return self.socket.close_code


def stream_request(hosted: Hosted, *, token: str | None = None, headers: dict[str, str] | None = None) -> HTTPRequest:
    """The request that opens a socket, with the client token unless another credential is named."""
    headers = dict(headers or {})
    if token != NO_TOKEN and "Cookie" not in headers:
        headers.setdefault("Authorization", f"Bearer {token or hosted.client_token}")
    return HTTPRequest(f"ws://127.0.0.1:{hosted.port}{hosted.base_url}gpulayer/v1/stream", headers=headers)


@asynccontextmanager
async def open_tab(hosted: Hosted, **options: Any) -> AsyncIterator[Tab]:
    """An open socket whose greeting has been read."""
    tab = Tab(await websocket_connect(stream_request(hosted, **options)))
    try:
        hello = await tab.frame()
        assert hello["type"] == "hello"
        yield tab
    finally:
        tab.socket.close()


_keys = iter(range(10**6))


async def submit(hosted: Hosted, **spec: Any) -> str:
    body = {"spec": {"kind": "command", "argv": ["true"], **spec}, "idempotency_key": f"stream-{next(_keys)}"}
    return str((await hosted.call("POST", "jobs", body=body))["job_id"])


class Printer:
    """A worker that has taken one job and prints what a test says."""

    def __init__(self, hosted: Hosted, token: str, task: dict[str, Any]) -> None:
        self._hosted = hosted
        self._token = token
        self._task = task
        self._offsets: dict[tuple[int, str], int] = {}
        self._lines: dict[tuple[int, str], int] = {}

    @classmethod
    async def take(cls, hosted: Hosted, job_id: str, *, start: bool = True) -> Printer:
        token, worker = await hosted.worker(f"of-{job_id}")
        (assignment,) = (await hosted.call("POST", "worker/acquire", token=token, body={**worker, "free": 1, "wait": 5}))["assignments"]
        assert assignment["job_id"] == job_id
        task = {"task_id": assignment["task_id"], "attempt": assignment["attempt"], **worker}
        await hosted.call("POST", "worker/acquire", token=token, body={**worker, "free": 0, "received": [task]})
        printer = cls(hosted, token, task)
        if start:
            await printer.say("start")
        return printer

    async def say(self, what: str, **fields: Any) -> None:
        await self._hosted.call("POST", f"worker/tasks/{self._task['task_id']}/{what}", token=self._token, body={**self._task, **fields})

    def chunk(self, text: str | bytes, *, rank: int = 0, stream: str = "stdout") -> dict[str, Any]:
        data = text.encode() if isinstance(text, str) else text
        key = (rank, stream)
        offset, line = self._offsets.get(key, 0), self._lines.get(key, 0)
        self._offsets[key], self._lines[key] = offset + len(data), line + data.count(b"\n")
        about = {"attempt": self._task["attempt"], "node": 0, "rank": rank, "stream": stream, "offset": offset, "first_line": line}
        return {**about, "time": 0.0, "data": base64.b64encode(data).decode()}

    async def print(self, *texts: str | bytes, **where: Any) -> None:
        await self.say("logs", chunks=[self.chunk(text, **where) for text in texts])

    async def finish(self, state: str = "succeeded") -> None:
        await self.say("finish", state=state)


def text_of(frame: dict[str, Any]) -> str:
    return b"".join(base64.b64decode(chunk["data"]) for chunk in frame["page"]["chunks"]).decode()


async def read_text(tab: Tab, number: int) -> str:
    """All the output of a subscription until it is complete."""
    text = ""
    while True:
        frame = await tab.frame_of(number)
        text += text_of(frame)
        if frame["page"]["complete"]:
            return text
