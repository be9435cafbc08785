"""The calls of workers: register, acquire, heartbeat, and what they say about one attempt.

Each is one transaction or one held question, fenced by worker, boot and attempt. The rules lie in `registration`,
`assignments` and `endings`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import msgspec

from gpulayer.control import assignments, endings, registration
from gpulayer.control.open_home import OpenHome
from gpulayer.control.store import attempts, changes, jobs, logs, metrics
from gpulayer.control.store import displays as store_displays
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.tokens import Caller
from gpulayer.control.waiters import Question
from gpulayer.errors import TooLarge, UnknownArtifact
from gpulayer.protocol import (
    LARGEST_DISPLAY_BYTES,
    AcquireNext,
    AttemptRef,
    Digest,
    Display,
    Done,
    Failure,
    HeartbeatReply,
    LogChunk,
    MetricBatch,
    OutputFile,
    Progress,
    RankOutcome,
    Registered,
    RegisterWorker,
    Rendezvous,
    StopOrder,
    TaskEnvironment,
    TaskFinished,
    TaskId,
    WorkerId,
    WorkerOrders,
)
from gpulayer.settings import BUSY_LEASE_SECONDS, HEARTBEAT_SECONDS, IDLE_LEASE_SECONDS
from gpulayer.states import AttemptState


class WorkerCalls(OpenHome):
    """What workers say to an open home."""

    async def register_worker(self, request: RegisterWorker, caller: Caller) -> Registered:
        """A worker joins or comes back (see `registration.register_worker`).

        Raises:
            ProtocolMismatch: its version of the protocol and ours are more than one apart.
        """
        registration.check_protocol(request.protocol)
        now = self._clock.now()
        self._leases.hear(request.boot)
        worker_id, token = await self._database.write(lambda c: registration.register_worker(c, now, request=request, caller=caller))
        self._told_to_drain.discard((worker_id, request.boot))
        return Registered(
            worker_id=worker_id,
            token=token,
            idle_lease_seconds=IDLE_LEASE_SECONDS,
            busy_lease_seconds=BUSY_LEASE_SECONDS,
            heartbeat_seconds=HEARTBEAT_SECONDS,
        )

    async def acquire_task(
        self,
        *,
        worker_id: WorkerId,
        boot: str,
        free: int,
        received: Sequence[AttemptRef] = (),
        known_orders: Sequence[StopOrder] = (),
        wait: float = 0.0,
    ) -> WorkerOrders:
        """Assignments and orders, held until there is something that the worker has not confirmed.

        Woken by changes that concern this worker. An assignment is repeated until a call names it as received, a stop until
        the attempt has ended; both are answered at once while the worker has not named them. A worker that drains is told at
        once, and then with every answer.

        Raises:
            UnknownWorker: the worker never registered.
            AttemptLost: it was started again since.
        """
        now = self._clock.now()
        known = frozenset(known_orders)
        self._leases.hear(boot)

        def is_news(orders: WorkerOrders) -> bool:
            has_left = orders.drain and (worker_id, boot) not in self._told_to_drain
            return bool(orders.assignments) or not known.issuperset(orders.stops) or has_left

        def ask(c: StoreConnection) -> WorkerOrders | None:
            orders = assignments.read_orders(c, worker_id=worker_id, boot=boot, free=free)
            return orders if is_news(orders) else None

        async def first() -> tuple[WorkerOrders, bool]:
            orders = await self._database.write(
                lambda c: assignments.renew_and_read_orders(c, now, worker_id=worker_id, boot=boot, free=free, received=received)
            )
            return orders, is_news(orders)

        async def look() -> tuple[WorkerOrders, bool]:
            orders = await self._database.read(lambda c: assignments.read_orders(c, worker_id=worker_id, boot=boot, free=free))
            return orders, is_news(orders)

        held = Question(key=("orders", worker_id, boot, free, known), ask=ask)
        orders = await self.waiters.hold_question(attempts.worker_topic(worker_id), held, wait=wait, first=first, look=look)
        if orders.drain:
            self._told_to_drain.add((worker_id, boot))
        return orders

    async def heartbeat(self, *, worker_id: WorkerId, boot: str, running: Sequence[AttemptRef] = ()) -> HeartbeatReply:
        """Renew a busy worker's lease; the answer names those of its attempts that are over."""
        now = self._clock.now()

        def change(c: StoreConnection) -> HeartbeatReply:
            assignments.hear_worker(c, now, worker_id=worker_id, boot=boot)
            return HeartbeatReply(lost=assignments.lost_of(c, worker_id=worker_id, boot=boot, running=running))

        self._leases.hear(boot)
        return await self._database.write(change)

    async def leave_worker(self, *, worker_id: WorkerId, boot: str) -> Done:
        """A worker takes its leave: its attempts are lost at once, and its held acquire ends."""
        now = self._clock.now()
        await self._database.write(lambda c: registration.leave_worker(c, now, worker_id=worker_id, boot=boot))
        return Done()

    async def start_task(self, *, task_id: TaskId, attempt: int, worker_id: WorkerId, boot: str) -> Done:
        """The attempt's process runs."""
        now = self._clock.now()

        def change(c: StoreConnection) -> None:
            row = attempts.fenced_attempt(c, task_id=task_id, attempt=attempt, worker_id=worker_id, boot=boot)
            endings.start_attempt(c, now, row)

        await self._database.write(change)
        return Done()

    async def append_logs(self, *, task_id: TaskId, attempt: int, worker_id: WorkerId, boot: str, chunks: Sequence[LogChunk]) -> Done:
        """Store output of a live attempt; what is sent again is stored once."""

        def change(c: StoreConnection) -> None:
            row = attempts.fenced_attempt(c, task_id=task_id, attempt=attempt, worker_id=worker_id, boot=boot)
            logs.append(c, row, chunks)

        await self._database.write(change)
        return Done()

    async def append_metrics(self, *, task_id: TaskId, attempt: int, worker_id: WorkerId, boot: str, batch: MetricBatch) -> Done:
        """Store metrics of a live attempt; what is sent again is stored once."""

        def change(c: StoreConnection) -> None:
            row = attempts.fenced_attempt(c, task_id=task_id, attempt=attempt, worker_id=worker_id, boot=boot)
            metrics.append(c, row, batch)

        await self._database.write(change)
        return Done()

    async def append_displays(self, *, task_id: TaskId, attempt: int, worker_id: WorkerId, boot: str, displays: Sequence[Display]) -> Done:
        """Store rich output of a live attempt; what is sent again is stored once.

        Raises:
            UnknownArtifact: what it refers to was not uploaded.
            TooLarge: that is larger than what may be displayed.
        """
        needed = [payload.artifact for display in displays for payload in display.data.values() if payload.artifact is not None]
        if needed:
            await asyncio.to_thread(self._check_displayed, needed)

        def change(c: StoreConnection) -> None:
            row = attempts.fenced_attempt(c, task_id=task_id, attempt=attempt, worker_id=worker_id, boot=boot)
            store_displays.append(c, row, displays)

        await self._database.write(change)
        return Done()

    def _check_displayed(self, digests: Sequence[Digest]) -> None:
        for digest in digests:
            path = self._artifacts.path(digest)
            if path is None:
                raise UnknownArtifact("What is displayed is not here.", asked=f"artifact {digest}", fix="Upload it first.")
            if path.stat().st_size > LARGEST_DISPLAY_BYTES:  # a notebook would take it in whole
                raise TooLarge(
                    "What is displayed is over its limit.", asked=f"artifact {digest}", found=f"limit {LARGEST_DISPLAY_BYTES} bytes"
                )

    async def report_progress(self, *, task_id: TaskId, attempt: int, worker_id: WorkerId, boot: str, progress: Progress) -> Done:
        """How far the job of a live attempt is."""
        encoded = msgspec.json.encode(progress)

        def change(c: StoreConnection) -> None:
            row = attempts.fenced_attempt(c, task_id=task_id, attempt=attempt, worker_id=worker_id, boot=boot)
            jobs.change_job(c, row.job_id, progress=encoded)

        await self._database.write(change)
        return Done()

    async def publish_rendezvous(self, *, task_id: TaskId, attempt: int, worker_id: WorkerId, boot: str, address: str, port: int) -> Done:
        """Where the ranks of this attempt meet."""

        def change(c: StoreConnection) -> None:
            row = attempts.fenced_attempt(c, task_id=task_id, attempt=attempt, worker_id=worker_id, boot=boot)
            attempts.put_rendezvous(c, row, address=address, port=port)

        await self._database.write(change)
        return Done()

    async def read_rendezvous(self, *, task_id: TaskId, attempt: int, worker_id: WorkerId, boot: str, wait: float = 0.0) -> Rendezvous:
        """Where the ranks of this attempt meet, held until it is known."""

        def question(c: StoreConnection) -> tuple[str, int] | None:
            row = attempts.fenced_attempt(c, task_id=task_id, attempt=attempt, worker_id=worker_id, boot=boot)
            return attempts.find_rendezvous(c, row)

        async def check() -> tuple[Rendezvous, bool]:
            found = await self._database.read(question)
            return (Rendezvous(), False) if found is None else (Rendezvous(address=found[0], port=found[1]), True)

        job_id, _ = attempts.split_task_id(task_id)
        # The job's own topic as well: the wait ends when the attempt does.
        return await self.waiters.hold([attempts.rendezvous_topic(job_id), jobs.job_topic(job_id)], wait=wait, check=check)

    async def report_failure(self, *, task_id: TaskId, attempt: int, worker_id: WorkerId, boot: str, failure: Failure) -> Done:
        """A rank failed: the first report of an attempt names the guilty rank, and its siblings are ordered to stop."""
        now = self._clock.now()

        def change(c: StoreConnection) -> None:
            row = attempts.fenced_attempt(c, task_id=task_id, attempt=attempt, worker_id=worker_id, boot=boot)
            assignments.report_failure(c, now, row, failure)

        await self._database.write(change)
        return Done()

    async def finish_task(
        self,
        *,
        task_id: TaskId,
        attempt: int,
        worker_id: WorkerId,
        boot: str,
        state: Literal["succeeded", "failed", "cancelled"],
        ranks: Sequence[RankOutcome] = (),
        failure: Failure | None = None,
        outputs: Sequence[OutputFile] = (),
        chunks: Sequence[LogChunk] = (),
        since_start_seconds: float | None = None,
        acquire: AcquireNext | None = None,
        environment: TaskEnvironment | None = None,
    ) -> TaskFinished:
        """How an attempt ended; said again it changes nothing (see `assignments.finish_attempt`).

        With `acquire` it renews the lease, and its answer carries the worker's orders: what was placed on the devices that
        this end freed, and the rest. The worker's held acquire is not woken for what the answer carries.
        """
        now = self._clock.now()
        self._leases.hear(boot)

        def change(c: StoreConnection) -> TaskFinished:
            assignments.finish_attempt(
                c,
                now,
                task_id=task_id,
                attempt=attempt,
                worker_id=worker_id,
                boot=boot,
                state=AttemptState(state),
                ranks=ranks,
                failure=failure,
                outputs=outputs,
                chunks=chunks,
                since_start_seconds=since_start_seconds,
                environment=environment,
            )
            if acquire is None:
                return TaskFinished()
            orders = assignments.renew_and_read_orders(c, now, worker_id=worker_id, boot=boot, free=acquire.free, received=acquire.received)
            changes.carry(c, attempts.worker_topic(worker_id))
            return TaskFinished(orders=orders)

        return await self._database.write(change)
