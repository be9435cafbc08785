"""A control plane on a temporary home, with clocks that tests move and workers that only talk."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from gpulayer.calls import CALLS, Role
from gpulayer.control import Caller, ControlPlane
from gpulayer.control.store.schema import DATABASE_NAME, prepare_home
from gpulayer.protocol import (
    PROTOCOL_VERSION,
    AcquireTask,
    AppendDisplays,
    AppendLogs,
    AppendMetrics,
    AttemptRef,
    Device,
    Display,
    Failure,
    FinishTask,
    GetJob,
    Heartbeat,
    HeartbeatReply,
    JobId,
    JobStatus,
    LeaveWorker,
    LogChunk,
    MetricBatch,
    MetricPoint,
    Progress,
    Registered,
    RegisterWorker,
    ReportFailure,
    ReportProgress,
    StartTask,
    StopOrder,
    SubmitJob,
    TaskAssignment,
    WorkerId,
    WorkerOrders,
)
from gpulayer.spec import AnyJob, CommandJob, DistributedJob

T = TypeVar("T")

USER = Caller(role=Role.CLIENT, user="ada")
AGENT = Caller(role=Role.CLIENT, user="ada", trusted=True)


class FakeClock:
    """Both clocks of a control plane; they move only when told to."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.wall = now
        self.steady = 1000.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.steady

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


def run(test: Coroutine[Any, Any, T]) -> T:
    """Run one asynchronous test; 60 s are a hang."""
    return asyncio.run(asyncio.wait_for(test, 60))


@cache
def _fresh_database() -> bytes:
    """The database of a home that was just made; migrating one for each test would take most of their time."""
    with tempfile.TemporaryDirectory() as folder:
        return prepare_home(Path(folder)).read_bytes()


@asynccontextmanager
async def open_control_plane(home: Path, **options: Any) -> AsyncIterator[ControlPlane]:
    """An open control plane, closed at the end of the block; `options` are those of `ControlPlane.open`."""
    if not home.exists():
        home.mkdir(mode=0o700)
        (home / DATABASE_NAME).write_bytes(_fresh_database())
    control_plane = await ControlPlane.open(home, **options)
    try:
        yield control_plane
    finally:
        await control_plane.close()


def devices(text: str, *, simulated: bool = True) -> tuple[Device, ...]:
    """Devices from a text like "cuda:2,cpu:4"; accelerators are simulated unless said otherwise."""
    made: list[Device] = []
    for part in filter(None, text.split(",")):
        kind, count = part.split(":")
        made += [
            Device(id=f"{kind}:{index}", accelerator=kind, index=index, simulated=simulated and kind != "cpu")
            for index in range(int(count))
        ]
    return tuple(made)


def command(**fields: Any) -> CommandJob:
    return CommandJob(("true",), **fields)


def distributed(**fields: Any) -> DistributedJob:
    return DistributedJob(script="train.py", **fields)


_keys = iter(range(10**9))


async def submit(control_plane: ControlPlane, spec: AnyJob | None = None, *, key: str | None = None, caller: Caller = USER) -> JobStatus:
    """Submit through the one entry, under a key of its own unless one is given."""
    request = SubmitJob(spec=spec or command(), idempotency_key=key or f"key-{next(_keys)}")
    answer = await control_plane.handle(CALLS["submit"], request, caller)
    assert isinstance(answer, JobStatus)
    return answer


async def status(control_plane: ControlPlane, job_id: JobId, *, wait: float = 0.0, after_revision: int | None = None) -> JobStatus:
    answer = await control_plane.handle(CALLS["wait_job"], GetJob(job_id=job_id, wait=wait, after_revision=after_revision), USER)
    assert isinstance(answer, JobStatus)
    return answer


@dataclass
class TalkingWorker:
    """A worker that runs nothing: it says what a test tells it to say."""

    control_plane: ControlPlane
    name: str
    worker_id: WorkerId
    boot: str
    caller: Caller = AGENT
    held: list[TaskAssignment] = field(default_factory=list)

    @classmethod
    async def join(
        cls,
        control_plane: ControlPlane,
        name: str = "a",
        *,
        offers: str = "cpu:2",
        boot: str = "boot-1",
        worker_id: WorkerId | None = None,
        caller: Caller = AGENT,
        **fields: Any,
    ) -> TalkingWorker:
        registered = await control_plane.handle(
            CALLS["register_worker"], registration(name, offers=offers, boot=boot, worker_id=worker_id, **fields), caller
        )
        assert isinstance(registered, Registered)
        return cls(control_plane, name, registered.worker_id, boot)

    async def acquire(
        self,
        *,
        free: int = 8,
        received: Sequence[TaskAssignment] = (),
        known_orders: Sequence[StopOrder] = (),
        wait: float = 0.0,
    ) -> WorkerOrders:
        answer = await self._say(
            "acquire_task",
            AcquireTask(
                worker_id=self.worker_id,
                boot=self.boot,
                free=free,
                received=tuple(AttemptRef(task_id=item.task_id, attempt=item.attempt) for item in received),
                known_orders=tuple(known_orders),
                wait=wait,
            ),
        )
        assert isinstance(answer, WorkerOrders)
        return answer

    async def take(self, *, wait: float = 0.0) -> TaskAssignment:
        """Acquire one assignment and confirm it."""
        (assignment,) = (await self.acquire(wait=wait)).assignments
        await self.acquire(received=[assignment])
        return assignment

    async def take_and_start(self, *, wait: float = 0.0) -> TaskAssignment:
        assignment = await self.take(wait=wait)
        await self.start(assignment)
        return assignment

    async def start(self, assignment: TaskAssignment) -> None:
        await self._say("start_task", StartTask(**self._about(assignment)))

    async def finish(self, assignment: TaskAssignment, state: Any = "succeeded", **fields: Any) -> None:
        await self._say("finish_task", FinishTask(**self._about(assignment), state=state, **fields))

    async def report(self, assignment: TaskAssignment, message: str, **fields: Any) -> None:
        failure = Failure(reason="rank", message=message, node=assignment.node, worker=self.name, **fields)
        await self._say("report_failure", ReportFailure(**self._about(assignment), failure=failure))

    async def log(self, assignment: TaskAssignment, data: bytes, *, offset: int = 0, rank: int | None = 0, stream: Any = "stdout") -> None:
        chunk = LogChunk(
            attempt=assignment.attempt, node=assignment.node, rank=rank, stream=stream, offset=offset, first_line=0, time=0.0, data=data
        )
        await self._say("append_logs", AppendLogs(**self._about(assignment), chunks=(chunk,)))

    async def log_metrics(self, assignment: TaskAssignment, *points: MetricPoint, number: int = 1, lost: int = 0) -> None:
        batch = MetricBatch(attempt=assignment.attempt, node=assignment.node, number=number, points=points, lost=lost)
        await self._say("append_metrics", AppendMetrics(**self._about(assignment), batch=batch))

    async def show(self, assignment: TaskAssignment, *displays: Display) -> None:
        await self._say("append_displays", AppendDisplays(**self._about(assignment), displays=displays))

    async def say_progress(self, assignment: TaskAssignment, done: float, *, total: float | None = None, text: str | None = None) -> None:
        progress = Progress(done=done, total=total, text=text, time=1.0)
        await self._say("report_progress", ReportProgress(**self._about(assignment), progress=progress))

    async def heartbeat(self, *running: TaskAssignment) -> HeartbeatReply:
        refs = tuple(AttemptRef(task_id=item.task_id, attempt=item.attempt) for item in running)
        answer = await self._say("heartbeat", Heartbeat(worker_id=self.worker_id, boot=self.boot, running=refs))
        assert isinstance(answer, HeartbeatReply)
        return answer

    async def leave(self) -> None:
        await self._say("leave_worker", LeaveWorker(worker_id=self.worker_id, boot=self.boot))

    def _about(self, assignment: TaskAssignment) -> dict[str, Any]:
        return {"task_id": assignment.task_id, "attempt": assignment.attempt, "worker_id": self.worker_id, "boot": self.boot}

    async def _say(self, name: str, request: Any) -> Any:
        return await self.control_plane.handle(CALLS[name], request, self.caller)


def registration(name: str = "a", *, offers: str = "cpu:2", boot: str = "boot-1", **fields: Any) -> RegisterWorker:
    """A worker's registration; workers live on one host unless `boot_id` says otherwise."""
    values: dict[str, Any] = {
        "boot": boot,
        "protocol": PROTOCOL_VERSION,
        "version": "0",
        "name": name,
        "host": "host-1",
        "boot_id": "host-1",
        "address": "127.0.0.1",
        "python": "/usr/bin/python3",
        "devices": devices(offers),
        "frameworks": {"python": "3.11", "torch": "2.13.0"},
    }
    return RegisterWorker(**{**values, **fields})


async def let_pass(clock: FakeClock, control_plane: ControlPlane, seconds: float, *, step: float = 2.0) -> None:
    """Move the clock in the steps of the lease monitor, checking the leases after each."""
    await control_plane.check_leases()
    while seconds > 0:
        clock.advance(min(step, seconds))
        seconds -= step
        await control_plane.check_leases()


async def held_on(control_plane: ControlPlane, topic: str) -> None:
    """Return once a call is held on this topic; what changes from here on reaches it."""
    while not control_plane.waiters.is_watched(topic):
        await asyncio.sleep(0)
