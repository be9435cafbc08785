"""The calls of the table over raw asyncio sockets: what a load of thousands of workers is made of, at little cost of its own.

One connection carries one call at a time, over HTTP/1.1 keep-alive. Messages and paths are the product's own.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gpulayer.calls import API_PREFIX, CALLS
from gpulayer.protocol import (
    PROTOCOL_VERSION,
    AcquireTask,
    AttemptRef,
    Device,
    FinishTask,
    Message,
    Registered,
    RegisterWorker,
    StartTask,
    TaskAssignment,
    WorkerOrders,
)

ACQUIRE_SECONDS = 30.0


class Connection(asyncio.Protocol):
    """One connection to a server.

    Args:
        url: the server's root.
        token: sent with every request.
    """

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self.url = url
        self.token = token
        self.answered_at = 0.0
        self._host, self._port, self._base = parts.hostname or "", parts.port or 80, parts.path.rstrip("/")
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a request has been sent and not been answered."""
        return self._answer is not None and not self._answer.done() and self._transport is not None

    async def open(self) -> Connection:
        await self._loop.create_connection(lambda: self, self._host, self._port)
        return self

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def call(self, name: str, request: Message) -> Any:
        """One call of the table; anything but 200 is an error of the benchmark."""
        return await self.send(self.prepared(name, request), CALLS[name].response)

    def prepared(self, name: str, request: Message) -> bytes:
        """A POST as it travels, for what is to be sent without being made first."""
        call = CALLS[name]
        fields = msgspec.structs.asdict(request)
        path = call.path.format(**{field: fields.pop(field) for field in call.path_fields})
        return self._head("POST", API_PREFIX + path, msgspec.json.encode(fields))

    async def send(self, request: bytes, answer: type[Message]) -> Any:
        status, body = await self.exchange(request)
        assert status == 200, (status, body[:500])
        return msgspec.json.decode(body, type=answer)

    async def get(self, path: str) -> bytes:
        """GET a path of the server."""
        status, body = await self.exchange(self._head("GET", path, b""))
        assert status == 200, (status, body[:500])
        return body

    async def post(self, path: str, content: bytes, *, expected: int = 200) -> bytes:
        """POST JSON to a path of the server."""
        status, body = await self.exchange(self._head("POST", path, content))
        assert status == expected, (status, body[:500])
        return body

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        assert self._transport is not None
        assert not self.is_waiting
        self._answer = self._loop.create_future()
        self._transport.write(request)
        return await self._answer

    def _head(self, method: str, path: str, body: bytes) -> bytes:
        head = (
            f"{method} {self._base}{path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in head else 0
        if len(self._buffer) < end + 4 + length:
            return
        self.answered_at = self._loop.time()
        body = bytes(self._buffer[end + 4 : end + 4 + length])
        self._buffer.clear()
        assert self._answer is not None
        if not self._answer.done():
            self._answer.set_result((int(head.split(b" ")[1]), body))


class RawWorker:
    """A worker of one cpu device that runs nothing: it registers, holds its acquire and says what it is told to say.

    Args:
        connection: its own, opened, with a token that may register workers.
        name: shown in lists; also a framework that it alone has, so that a job can ask for exactly this worker.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.name = name
        self.worker_id: Any = ""

    async def register(self) -> None:
        """Join, and speak with a token of its own from then on."""
        device = Device(id=f"cpu:0@{self.name}", accelerator="cpu", index=0)
        request = RegisterWorker(
            boot=self.name,
            protocol=PROTOCOL_VERSION,
            version="0",
            name=self.name,
            host=f"host-{self.name}",
            boot_id=f"boot-{self.name}",
            address="127.0.0.1",
            python="python3",
            devices=(device,),
            frameworks={self.name: ""},
        )
        registered: Registered = await self.connection.call("register_worker", request)
        assert registered.token is not None
        self.worker_id, self.connection.token = registered.worker_id, registered.token

    async def acquire(self, *, received: tuple[AttemptRef, ...] = (), known_orders: tuple[Any, ...] = ()) -> WorkerOrders:
        """One held acquire."""
        request = AcquireTask(
            worker_id=self.worker_id, boot=self.name, free=1, received=received, known_orders=known_orders, wait=ACQUIRE_SECONDS
        )
        orders: WorkerOrders = await self.connection.call("acquire_task", request)
        return orders

    async def assignment(self) -> TaskAssignment:
        """Hold acquires until there is an assignment."""
        while not (orders := await self.acquire()).assignments:
            pass
        return orders.assignments[0]

    async def start(self, task: TaskAssignment) -> None:
        await self.connection.call("start_task", StartTask(**self.said_of(task)))

    async def finish(self, task: TaskAssignment, state: Any) -> None:
        await self.connection.call("finish_task", FinishTask(state=state, **self.said_of(task)))

    def said_of(self, task: TaskAssignment) -> dict[str, Any]:
        """The fields of every message about an attempt."""
        return {"task_id": task.task_id, "attempt": task.attempt, "worker_id": self.worker_id, "boot": self.name}
