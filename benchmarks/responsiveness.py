"""Whether the notebook stays quick: Jupyter's own `/api/status` and a kernel's echo while the control plane is busy.

Looked at on one server, while the load (`load.py`) is aimed at that server and, as the reference, at a second one on the
same machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raw_calls import Connection
from report import Result, parser, percentile, print_results
from served import Server, end_on_signals, served
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

METHOD = (
    "two servers with a worker each; on the first one, /api/status is asked for every 5 ms and its kernel prints a word every 10 ms, while"
    " a process of its own has the control plane take tasks that print, jobs and an upload; the same load on the second server is the"
    " reference; in turns, p99 of all samples of a side"
)


@dataclass(frozen=True)
class Load:
    """How much is asked for."""

    rounds: int
    jobs: int
    printers: int
    lines_each_second: int
    upload_bytes: int

    @property
    def options(self) -> list[str]:
        """As `load.py` takes them."""
        return [
            *("--printers", str(self.printers), "--lines-each-second", str(self.lines_each_second)),
            *("--jobs", str(self.jobs), "--upload-bytes", str(self.upload_bytes)),
        ]


LOADS = {
    "full": Load(rounds=5, jobs=100, printers=8, lines_each_second=1000, upload_bytes=200 * 2**20),
    "quick": Load(rounds=1, jobs=100, printers=8, lines_each_second=1000, upload_bytes=200 * 2**20),
    "tiny": Load(rounds=1, jobs=2, printers=1, lines_each_second=100, upload_bytes=2**20),
}
_LOAD = Path(__file__).with_name("load.py")
SLOWER = 1.5
LIMIT_MS = 50.0


@dataclass
class Samples:
    """What was seen on one side, in seconds."""

    status: list[float] = field(default_factory=list)
    echo: list[float] = field(default_factory=list)
    loads: list[dict[str, float]] = field(default_factory=list)


class Kernel:
    """A kernel of the server, over the WebSocket that a notebook uses.

    Args:
        socket: open.
    """

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self._socket = socket
        self._session = uuid.uuid4().hex

    async def echo(self) -> None:
        """Have it print a word, and return when the word is here."""
        word, asked = uuid.uuid4().hex, uuid.uuid4().hex
        content = {"code": f"print('{word}')", "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
        header = {"msg_id": asked, "msg_type": "execute_request", "session": self._session, "username": "", "version": "5.3", "date": ""}
        message = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content, "buffers": []}
        await self._socket.write_message(json.dumps(message))
        while True:
            received = await self._socket.read_message()
            assert received is not None, "the kernel's connection was closed"
            answer = json.loads(received)
            if answer["parent_header"].get("msg_id") == asked and answer["msg_type"] == "stream":
                assert answer["content"]["text"].strip() == word
                return


def main() -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args()
    end_on_signals()
    load = LOADS[options.size]
    devices = load.printers + 2
    with contextlib.ExitStack() as stack:
        looked_at = stack.enter_context(served(workers=1, cpu_devices=devices))
        # The smallest form only shows that it runs: one server is both.
        other = looked_at if options.size == "tiny" else stack.enter_context(served(workers=1, cpu_devices=devices))
        results = asyncio.run(measure(looked_at, other, load))
    print_results(results, as_json=options.json, method=METHOD)


async def measure(looked_at: Server, other: Server, load: Load) -> list[Result]:
    """Rounds of the load here and the load there."""
    loaded, reference = Samples(), Samples()
    async with _kernel(looked_at) as kernel:
        for _ in range(load.rounds):
            await _look_under_load(looked_at, kernel, other, load, reference)
            await _look_under_load(looked_at, kernel, looked_at, load, loaded)
    return [
        _result("status.p99", loaded.status, reference.status, loaded, load),
        _result("kernel_echo.p99", loaded.echo, reference.echo, loaded, load),
    ]


async def _look_under_load(looked_at: Server, kernel: Kernel, target: Server, load: Load, samples: Samples) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(_LOAD), target.url, *load.options), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(f"{target.client_token}\n".encode())
        assert await process.stdout.readline() == b"loaded\n", "the load ended"
        process.stdin.write(b"begin\n")
        connection = await Connection(looked_at.url, looked_at.token).open()
        lookers = [
            asyncio.create_task(_look(lambda: connection.get("/api/status"), samples.status, every=0.005)),
            asyncio.create_task(_look(kernel.echo, samples.echo, every=0.01)),
        ]
        assert await process.stdout.readline() == b"done\n", "the load ended"
        for looker in lookers:
            looker.cancel()
        await asyncio.gather(*lookers, return_exceptions=True)
        connection.close()
        samples.loads.append(json.loads(await process.stdout.readline()))
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def _look(what: Callable[[], Awaitable[Any]], seen: list[float], *, every: float) -> None:
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        await what()
        seen.append(loop.time() - began)
        await asyncio.sleep(every)


@contextlib.asynccontextmanager
async def _kernel(server: Server) -> AsyncIterator[Kernel]:
    """A kernel that has answered once. It ends with its server."""
    connection = await Connection(server.url, server.token).open()
    made = json.loads(await connection.post("/api/kernels", b'{"name": "python3"}', expected=201))
    url = f"{server.url.replace('http', 'ws', 1)}api/kernels/{made['id']}/channels?session_id={uuid.uuid4().hex}"
    socket = await websocket_connect(HTTPRequest(url, headers={"Authorization": f"Bearer {server.token}"}))
    try:
        kernel = Kernel(socket)
        await kernel.echo()
        yield kernel
    finally:
        socket.close()
        connection.close()


def _result(case: str, values: list[float], references: list[float], loaded: Samples, load: Load) -> Result:
    value, reference = percentile(values, 0.99) * 1000, percentile(references, 0.99) * 1000
    lines = load.printers * sum(one["lines_each_second"] for one in loaded.loads) / len(loaded.loads)
    seconds = sum(one["seconds"] for one in loaded.loads) / len(loaded.loads)
    return Result(
        benchmark="responsiveness",
        case=case,
        value=value,
        unit="ms",
        reference="the same load on another server",
        reference_value=reference,
        ratio=value / reference,
        target=SLOWER,
        better="lower",
        limit=LIMIT_MS,
        status="measured",
        n=min(len(values), len(references)),
        detail=(
            f"{load.jobs} jobs and {load.upload_bytes / 2**20:.0f} MB in {seconds:.1f} s, {lines:.0f} lines/s of {load.printers} tasks;"
            f" and at most {LIMIT_MS:.0f} ms"
        ),
    )


if __name__ == "__main__":
    main()
