"""A proxy between clients, workers and the server whose connections a test cuts at the moment it chooses."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

ASSIGNMENT_IN_ANSWER = b'"assignments":[{'


class ChaosProxy:
    """Forwards TCP from one loopback port, in a thread of its own, to wherever the server listens at the time."""

    def __init__(self) -> None:
        self.port = 0
        self.refuse: Callable[[bytes], bool] = lambda request: False
        """Requests (as their first bytes) that are cut instead of forwarded."""
        self._target: int | None = None
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._asking: set[asyncio.StreamWriter] = set()
        """Of the pairs, the clients' ends of those on which a request has no answer yet."""
        self._cut_answer_with: bytes | None = None
        self._changed = threading.Condition()
        self._counts: dict[bytes, int] = {}
        self._answers_cut = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxy", daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]

    def lead_to(self, port: int | None) -> None:
        """Where new connections go; None refuses them."""
        self._target = port

    def cut_all(self) -> int:
        """Reset every connection at this moment; returns on how many of them a request had no answer yet."""
        return self._run(self._cut_all())

    def cut_answer(self, containing: bytes | None) -> None:
        """The next answer that holds these bytes is not delivered: its connection is reset instead. None takes that back."""
        self._cut_answer_with = containing

    def wait_for_cut(self, count: int = 1, timeout: float = 30.0) -> bool:
        """Whether so many answers have been cut so far, waiting for it."""
        with self._changed:
            return self._changed.wait_for(lambda: self._answers_cut >= count, timeout)

    @property
    def answers_cut(self) -> int:
        return self._answers_cut

    def count(self, path: bytes) -> int:
        """How many requests to paths that end so were forwarded or refused."""
        with self._changed:
            return self._counts.get(path, 0)

    def wait_for_requests(self, path: bytes, more: int, timeout: float = 30.0) -> None:
        """Block until `more` further requests to this path came by."""
        with self._changed:
            wanted = self._counts.get(path, 0) + more
            assert self._changed.wait_for(lambda: self._counts.get(path, 0) >= wanted, timeout), path

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            await self._cut_all()
            # Not cancelled: asyncio's streams complain about a handler that was. They end with their connections.
            await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()), return_exceptions=True)

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._target is None:
            writer.transport.abort()
            return
        try:
            upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, upstream)
        self._pairs.add(pair)
        pumps = [
            asyncio.ensure_future(self._pump(reader, upstream, lambda data: self._stops_request(data, writer))),
            asyncio.ensure_future(self._pump(upstream_reader, writer, lambda data: self._stops_answer(data, writer))),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._pairs.discard(pair)
            self._asking.discard(writer)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in pair:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stops: Callable[[bytes], bool]) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(256 * 1024):
                if stops(data):
                    return
                writer.write(data)
                await writer.drain()

    def _stops_request(self, data: bytes, client: asyncio.StreamWriter) -> bool:
        self._asking.add(client)
        line = data.split(b"\r\n", 1)[0]
        if line.endswith(b" HTTP/1.1"):
            path = line.split(b" ")[1].split(b"?")[0].rsplit(b"/", 1)[-1]
            with self._changed:
                self._counts[path] = self._counts.get(path, 0) + 1
                self._changed.notify_all()
            return self.refuse(line)
        return False

    def _stops_answer(self, data: bytes, client: asyncio.StreamWriter) -> bool:
        self._asking.discard(client)
        if self._cut_answer_with is None or self._cut_answer_with not in data:
            return False
        self._cut_answer_with = None
        with self._changed:
            self._answers_cut += 1
            self._changed.notify_all()
        return True

    async def _cut_all(self) -> int:
        asking = len(self._asking)
        for pair in list(self._pairs):
            for end in pair:
                end.transport.abort()
        return asking

    def _run(self, what):
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)
