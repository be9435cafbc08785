"""Where each millisecond of a dispatched job goes: six stages, from monotonic stamps of one machine.

The worker is an agent in a thread of this process, over a transport that notes when its calls are made and answered; with
the runtime's own start and end of the process that gives every border. A job that prints one line, so that there is output
to send.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from report import Result
from served import COLD, WARM, check_start, environment, served, temporary_folder

import gpulayer
from gpulayer.calls import Call
from gpulayer.client.http_transport import HttpTransport
from gpulayer.client.transport import Transport
from gpulayer.embedded import EmbeddedControlPlane
from gpulayer.protocol import Digest, Message
from gpulayer.runtime.process import Keeper
from gpulayer.runtime.task_processes import ProcessExit, TaskProcesses
from gpulayer.worker.agent import Agent
from gpulayer.worker.config import WorkerConfig
from gpulayer.worker.task_runner import TaskRunner

STAGES = ("submit", "dispatch", "prepare", "run", "logs", "finish")
"""The same six as on the performance page:

submit    the client's call, until it is answered or the worker has its assignment, whichever is first
dispatch  until the worker has its assignment
prepare   until a process is told what to become
run       until its exit is known
logs      until the end is reported: its channel and pipes at their end, no process left, outputs found, what was printed sent
finish    until wait() returns
"""


class StampingTransport:
    """Passes a worker's calls on and notes when."""

    def __init__(self, inner: Transport, stamps: dict[str, float]) -> None:
        self.inner = inner
        self.description = inner.description
        self._stamps = stamps

    @property
    def token(self) -> str | None:
        return self.inner.token

    def call(self, call: Call, request: Message, *, timeout: float | None = None) -> Any:
        if call.name == "finish_task":
            self._stamps["finish sent"] = time.monotonic()
        answer = self.inner.call(call, request, timeout=timeout)
        if getattr(answer, "assignments", ()):
            self._stamps["assigned"] = time.monotonic()
        return answer

    def has_artifact(self, sha256: Digest) -> bool:
        return self.inner.has_artifact(sha256)

    def put_artifact(self, path: Path, sha256: Digest) -> None:
        self.inner.put_artifact(path, sha256)

    def get_artifact(self, sha256: Digest, destination: Path) -> None:
        self.inner.get_artifact(sha256, destination)

    def close(self) -> None:
        self.inner.close()


def stage_results(*, repeats: int, over_http: tuple[bool, ...], starts: tuple[str, ...] = ("cold", "warm")) -> list[Result]:
    """The median of each stage, for both ways to start, without and with HTTP between; `ratio` is a stage's share of the whole."""
    results: list[Result] = []
    for start, is_http in itertools.product(starts, over_http):
        with _traced_worker(is_http, COLD if start == "cold" else WARM) as (client, stamps):
            measured = [_one_job(client, stamps, is_warm=start == "warm") for _ in range(repeats + 1)][1:]
        total = statistics.median(sum(stages.values()) for stages in measured) * 1000
        for stage in STAGES:
            took = statistics.median(stages[stage] for stages in measured) * 1000
            results.append(
                Result(
                    benchmark="dispatch",
                    case=f"stage.{start}.{'http' if is_http else 'embedded'}.{stage}",
                    value=took,
                    unit="ms",
                    reference="the whole",
                    reference_value=total,
                    ratio=took / total,
                    target=None,
                    better="lower",
                    status="measured",
                    n=repeats,
                    detail="the worker is a thread of the client's process",
                )
            )
    return results


def _one_job(client: gpulayer.Client, stamps: dict[str, float], *, is_warm: bool) -> dict[str, float]:
    stamps.clear()
    began = time.monotonic()
    job = client.submit(gpulayer.CommandJob(argv=("python", "-c", "print(1)"), accelerator="cpu"))
    submitted = time.monotonic()
    job.wait()
    ended = time.monotonic()
    assert job.status.state is gpulayer.JobState.SUCCEEDED, job.status
    assert [line.text for line in job.logs()] == ["1"]
    check_start(job.status, is_warm=is_warm)
    borders = [
        began,
        min(submitted, stamps["assigned"]),
        *(stamps[name] for name in ("assigned", "started", "exited", "finish sent")),
        ended,
    ]
    return {stage: after - before for stage, before, after in zip(STAGES, borders, borders[1:], strict=False)}


@contextlib.contextmanager
def _traced_worker(is_http: bool, env: dict[str, str]) -> Iterator[tuple[gpulayer.Client, dict[str, float]]]:
    """A client and one worker in this process, and the stamps of whichever job runs."""
    stamps: dict[str, float] = {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        stack.enter_context(environment(**env))
        if is_http:
            server = stack.enter_context(served())
            client = server.client
            way: Transport = HttpTransport(server.url, client.create_join_token().token)
        else:
            control_plane = EmbeddedControlPlane(folder / "home")
            stack.callback(control_plane.close)
            client, way = control_plane.client(), control_plane.worker_transport()
        stack.enter_context(_stamped_process(stamps))
        agent = Agent(
            StampingTransport(way, stamps), WorkerConfig(name="traced", work_dir=folder / "work", cpu_devices=1, python=sys.executable)
        )
        agent.register()
        thread = threading.Thread(target=agent.run, name="traced-worker", daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(agent.stop)
        yield client, stamps


@contextlib.contextmanager
def _stamped_process(stamps: dict[str, float]) -> Iterator[None]:
    """Note when the runtime starts a process, and when it knows of its exit."""
    on_started, open_task = TaskRunner.on_started, Keeper.open_task

    def stamped_start(self: TaskRunner, at: float) -> None:
        stamps["started"] = at
        on_started(self, at)

    def stamped_task(self: Keeper, on_exit: Callable[[ProcessExit], None], on_lost: Callable[[], None]) -> TaskProcesses:
        def stamped_exit(ended: ProcessExit) -> None:
            stamps["exited"] = time.monotonic()
            on_exit(ended)

        return open_task(self, stamped_exit, on_lost)

    TaskRunner.on_started, Keeper.open_task = stamped_start, stamped_task  # type: ignore[method-assign]
    try:
        yield
    finally:
        TaskRunner.on_started, Keeper.open_task = on_started, open_task  # type: ignore[method-assign]
