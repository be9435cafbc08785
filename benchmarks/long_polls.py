"""Thousands of waiting workers on one real Jupyter server: held, what each costs in memory, and how soon one of them is woken.

Every worker is registered with its own token and holds an acquire over a connection of its own; the protocol is the
product's, the sockets are raw (`raw_calls.py`), so that one process can be all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import psutil
from raw_calls import Connection, RawWorker
from report import Result, against_target, parser, percentile, print_results
from served import Server, end_on_signals, raise_open_files, served

import gpulayer
from gpulayer.protocol import AttemptRef, CancelJob, JobStatus, StopOrder, SubmitJob, TaskAssignment

METHOD = (
    "a Jupyter server process with the extension; each worker registered with its own token and holding an acquire on its own connection;"
    " bytes: growth of the server's resident memory / workers, tokens and everything; wake: from sending the submit of a job that one"
    " worker alone can take until that worker has the answer, placement and commit included, while all others wait"
)
WORKERS = {"full": 10_000, "quick": 500, "tiny": 20}
SAMPLES = {"full": 300, "quick": 200, "tiny": 3}
WARM_WORKERS = 5
"""Registered before the memory is read the first time: imports and caches of first calls are not the waiters'."""
BYTES_EACH = 30_000
WAKE_MS = 5.0
AT_ONCE = 16
"""How many register at the same time."""


@dataclass
class Waiting:
    """A worker whose acquire is held, for as long as the benchmark runs.

    Args:
        worker: registered.
        said: a second connection's view of it, for what it says while its acquire is held; made when it is first needed.
    """

    worker: RawWorker
    said: RawWorker | None = None
    _answers: asyncio.Queue[tuple[float, TaskAssignment | StopOrder]] = field(default_factory=asyncio.Queue)
    _tasks: set[AttemptRef] = field(default_factory=set)
    _orders: set[StopOrder] = field(default_factory=set)

    async def hold(self) -> None:
        """Ask again whenever an acquire is answered; what an answer says for the first time is kept with its time."""
        received: tuple[AttemptRef, ...] = ()
        while True:
            orders = await self.worker.acquire(received=received, known_orders=tuple(self._orders))
            received = tuple(AttemptRef(task_id=task.task_id, attempt=task.attempt) for task in orders.assignments)
            fresh = [task for task, ref in zip(orders.assignments, received, strict=True) if ref not in self._tasks]
            for one in (*fresh, *(order for order in orders.stops if order not in self._orders)):
                self._answers.put_nowait((self.worker.connection.answered_at, one))
            self._tasks.update(received)
            self._orders.update(orders.stops)

    async def answer(self) -> tuple[float, TaskAssignment | StopOrder]:
        """The next thing that it was told, and when."""
        return await self._answers.get()

    async def aside(self) -> RawWorker:
        """The same worker on another connection."""
        if self.said is None:
            own = self.worker
            self.said = RawWorker(await Connection(own.connection.url, own.connection.token).open(), own.name)
            self.said.worker_id = own.worker_id
        return self.said

    def close(self) -> None:
        self.worker.connection.close()
        if self.said is not None:
            self.said.connection.close()


def main() -> None:
    """Measure and print."""
    options = _options()
    end_on_signals()
    workers = options.workers or WORKERS[options.size]
    raise_open_files(workers + SAMPLES[options.size] + 500)
    with served() as server:
        results = asyncio.run(measure(server, workers, SAMPLES[options.size]))
    print_results(results, as_json=options.json, method=METHOD)


async def measure(server: Server, count: int, samples: int) -> list[Result]:
    """Let them wait, look, and wake some one by one."""
    process = psutil.Process(server.process.pid)
    waiting: list[Waiting] = []
    async with asyncio.TaskGroup() as group:
        holders: list[asyncio.Task[None]] = []

        async def wait_with(numbers: range) -> None:
            slots = asyncio.Semaphore(AT_ONCE)

            async def one(number: int) -> None:
                async with slots:
                    worker = RawWorker(await Connection(server.url, server.client_token).open(), f"waiter-{number}")
                    await worker.register()
                waiting.append(Waiting(worker))
                holders.append(group.create_task(waiting[-1].hold()))

            await asyncio.gather(*(one(number) for number in numbers))

        began = time.monotonic()
        await wait_with(range(WARM_WORKERS))
        control = await Connection(server.url, server.client_token).open()
        for one in waiting[:2]:
            await _wake(control, one)
        before = process.memory_info().rss
        cpu_before = _cpu_seconds(process)
        await wait_with(range(WARM_WORKERS, count))
        await _all_wait(waiting, control)
        registered_in = time.monotonic() - began
        held = sum(one.worker.connection.is_waiting for one in waiting)
        grown = process.memory_info().rss - before
        registration_cpu = (_cpu_seconds(process) - cpu_before) / max(1, count - WARM_WORKERS)
        cpu_before = _cpu_seconds(process)
        wakes = [await _wake(control, waiting[number * len(waiting) // samples]) for number in range(samples)]
        wake_cpu = (_cpu_seconds(process) - cpu_before) / samples
        for task in holders:
            task.cancel()
    for one in waiting:
        one.close()
    control.close()
    detail = f"{count} workers, registered within {registered_in:.0f} s"
    detail += f"; {registration_cpu * 1000:.2f} ms of the server's CPU for each, with its connection and its first acquire"
    loop_note = f"{count - 1} others wait; median {statistics.median(first for first, _ in wakes) * 1000:.2f} ms"
    loop_note += f"; {wake_cpu * 1000:.2f} ms of the server's CPU for all six calls of a wake, a cancel and an end"
    return [
        _result("held", "workers", "higher", 1, against_target(held, count), detail),
        _result("bytes_each", "bytes", "lower", 1, against_target(grown / max(1, count - WARM_WORKERS), BYTES_EACH), f"{count} workers"),
        _result(
            "wake_one.p99",
            "ms",
            "lower",
            samples,
            against_target(percentile([first for first, _ in wakes], 0.99) * 1000, WAKE_MS),
            loop_note,
        ),
        _result(
            "wake_one.order.p99",
            "ms",
            "lower",
            samples,
            against_target(percentile([second for _, second in wakes], 0.99) * 1000, WAKE_MS),
            f"{count - 1} others wait; from sending a cancel until the worker has the order to stop",
        ),
    ]


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _wake(control: Connection, one: Waiting) -> tuple[float, float]:
    """Seconds until this worker has a job that it alone can take, and until it has the order to stop it; then both are undone."""
    loop = asyncio.get_running_loop()
    spec = gpulayer.CommandJob(argv=("python", "-c", "pass"), accelerator="cpu", requires=(one.worker.name,))
    sent = loop.time()
    status: JobStatus = await control.call("submit", SubmitJob(spec=spec, idempotency_key=f"{one.worker.name}-{sent}"))
    told_at, task = await one.answer()
    assert isinstance(task, TaskAssignment)
    assert task.job_id == status.job_id
    first = told_at - sent
    aside = await one.aside()
    await aside.start(task)
    sent = loop.time()
    await control.call("cancel", CancelJob(job_id=status.job_id))
    told_at, order = await one.answer()
    assert isinstance(order, StopOrder)
    assert order.task_id == task.task_id
    await aside.finish(task, "cancelled")
    return first, told_at - sent


async def _all_wait(waiting: list[Waiting], control: Connection) -> None:
    """Return once every acquire has been sent and the server has nothing else to do: an answer comes after what came before it."""
    for _ in range(3):
        await control.get("/gpulayer/v1/health")
    while not all(one.worker.connection.is_waiting for one in waiting):
        await control.get("/gpulayer/v1/health")


def _result(case: str, unit: str, better: Any, n: int, numbers: dict[str, Any], detail: str) -> Result:
    return Result(benchmark="long_polls", case=case, unit=unit, better=better, status="measured", n=n, detail=detail, **numbers)


def _options() -> Any:
    made = parser(__doc__)
    made.add_argument("--workers", type=int, help="how many wait; 10000 without --quick")
    return made.parse_args()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
