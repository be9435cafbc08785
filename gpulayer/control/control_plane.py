"""The control plane: an open home that answers every call of `calls.CALLS` and watches its workers' leases.

Nothing is decided here or in the asyncio loop: calls become transactions in `client_calls` and `worker_calls`, whose rules
lie by noun in `submitting`, `assignments`, `endings`, `registration`, `placing` and `statuses`. Hosted by the Jupyter server's
loop, or by the loop of an embedded control plane.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import Any, Literal

from gpulayer import settings
from gpulayer.calls import Call, Role
from gpulayer.control import endings, registration
from gpulayer.control.client_calls import ClientCalls
from gpulayer.control.clock import Clock, SystemClock
from gpulayer.control.leases import LEASE_CHECK_SECONDS, Lease
from gpulayer.control.local_workers import LocalWorkers
from gpulayer.control.placing import place_queue
from gpulayer.control.store import client_leases, jobs
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.schema import prepare_home
from gpulayer.control.stream_calls import StreamCalls
from gpulayer.control.tokens import Caller
from gpulayer.control.worker_calls import WorkerCalls
from gpulayer.errors import Interrupted, NotAuthorized
from gpulayer.protocol import Message

_log = logging.getLogger(__name__)

LEASES_AT_ONCE = 250
"""Compared in a quarter of a millisecond, which is as long as other calls wait for it."""

_FOR_CALLER = frozenset({"submit", "create_join_token", "start_local_workers", "register_worker"})
"""Calls whose answer depends on who makes them: their methods take request and caller, all others the request's fields."""


class ControlPlane(ClientCalls, StreamCalls, WorkerCalls):
    """One open home. Made by `open`; every method runs in the loop that opened it."""

    _monitor: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        home: Path,
        *,
        clock: Clock | None = None,
        judge_silent_only: bool = False,
        local_workers: LocalWorkers | None = None,
        synchronous: Literal["normal", "full"] | None = None,
        serves_browsers: bool = False,
    ) -> ControlPlane:
        """Open a home, making it (0700) and its database if needed, and begin to watch leases and others' changes.

        Args:
            home: may be open in other processes too.
            clock: of tests.
            judge_silent_only: call only those workers lost that were silent for the orphan limit.
            local_workers: how this host starts workers; None where it does not.
            synchronous: whether commits wait for the disk (ADR-0031); None: as GPULAYER_SYNCHRONOUS says.
            serves_browsers: whether views may come and draw jobs, so that it is worth waiting for one.
        """
        database_path = await asyncio.to_thread(prepare_home, home)
        plane = cls(
            home,
            database_path,
            clock=clock or SystemClock(),
            judge_silent_only=judge_silent_only,
            local_workers=local_workers,
            synchronous=synchronous or settings.synchronous(),
            serves_browsers=serves_browsers,
        )
        try:
            await plane._database.ready()
            await asyncio.to_thread(plane._artifacts.remove_abandoned_parts, plane._clock.now())
        except BaseException:
            await plane.close()
            raise
        plane._monitor = asyncio.create_task(plane._watch_leases(), name="gpulayer-leases")
        return plane

    async def close(self) -> None:
        """End every held call with `Interrupted`, commit what is queued, and close the database; what was accepted stays."""
        if self._monitor is not None:
            self._monitor.cancel()
            await asyncio.gather(self._monitor, return_exceptions=True)
        self.waiters.close()
        await self._database.close()
        await asyncio.to_thread(self._artifact_threads.shutdown)
        await asyncio.to_thread(self._artifacts.close)

    async def handle(self, call: Call, request: Message, caller: Caller) -> Message:
        """Answer one call, by the method of its name: the way in for every transport.

        Raises:
            NotAuthorized: the caller's role may not make this call, or speaks for another worker.
            GPUlayerError: what the call's own method raises.
        """
        if not caller.trusted:
            _check_caller(call, request, caller)
        method = getattr(self, call.name)
        answer: Message = await (method(request, caller) if call.name in _FOR_CALLER else method(**_fields(request)))
        return answer

    async def check_leases(self) -> None:
        """Compare the leases with the store once, and take their work from workers that are lost.

        A large fleet is looked at in slices, and the loop serves others between them.
        """
        async with self._leases_lock:
            lost = await self._look_at_leases()
        if self._told_to_drain:
            heard = self._leases.heard()
            self._told_to_drain = {(worker_id, boot) for worker_id, boot in self._told_to_drain if boot in heard}
        for lease in lost:
            _log.warning("Worker %s is lost: not heard for its lease.", lease.worker_id)
            now = self._clock.now()
            await self._database.write(lambda c, lease=lease, now=now: registration.lose_worker(c, now, lease))  # type: ignore[misc]

    async def check_client_leases(self) -> None:
        """Compare the leases of jobs that end with their client with the store once, and cancel those that have run out."""
        read = await self._database.read(client_leases.read_leases)
        if not read:
            return
        over = self._client_leases.over(lease for lease in read if not lease.has_ended)
        ended = [lease.job_id for lease in read if lease.has_ended]
        if not over and not ended:
            return
        now = self._clock.now()

        def change(c: StoreConnection) -> None:
            for job_id in (*over, *ended):
                client_leases.delete_lease(c, job_id)
            for job_id in over:
                endings.cancel_job(c, now, jobs.job_row(c, job_id), force=False)
            if over:
                place_queue(c, now)

        for job_id in over:
            _log.info("Job %s is cancelled: the client that it is bound to was not heard for its lease.", job_id)
        await self._database.write(change)

    async def _look_at_leases(self) -> list[Lease]:
        # By the writer, which remembers who spoke: reading 10 000 workers takes a reader's thread 90 ms of everybody's time.
        is_whole = not self._leases.is_current
        self._leases.begin()
        read = await self._database.write(partial(registration.read_leases, whole=is_whole))
        for start in range(0, len(read.rows), LEASES_AT_ONCE):
            self._leases.take(Lease(row.id, row.boot, row.renewals, row.last_seen_at) for row in read.rows[start : start + LEASES_AT_ONCE])
            await _next_turn()
        if read.is_whole:
            self._leases.keep_only({row.id for row in read.rows})
        self._leases.forget(read.gone)
        return self._leases.over(read.busy)

    async def _watch_leases(self) -> None:
        with self.waiters.watch(_LEASES_TOPIC) as watch:
            while True:
                await watch.changed(LEASE_CHECK_SECONDS)
                try:
                    await self.check_leases()
                    await self.check_client_leases()
                except Interrupted:
                    raise  # the database is closed, or its writer has ended and said why: nothing can be judged any more
                except Exception:  # noqa: BLE001  # top of the loop
                    # A full disk or a held lock passes, and one worker's odd row must not keep the others from being
                    # judged again: a monitor that ended would leave jobs running for ever.
                    _log.exception("The leases could not be checked; they are checked again.")


async def _next_turn() -> None:
    """Let the loop serve what is ready."""
    loop = asyncio.get_running_loop()
    turn: asyncio.Future[None] = loop.create_future()

    def come() -> None:
        if not turn.done():  # the control plane may be closing
            turn.set_result(None)

    loop.call_soon(come)
    await turn


_LEASES_TOPIC = "leases"
"""Nothing has to signal it: the watch is a wait that ends with the control plane."""


def _fields(request: Message) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__struct_fields__}


def _check_caller(call: Call, request: Message, caller: Caller) -> None:
    if caller.role not in call.roles:
        raise NotAuthorized(
            "This credential may not make this call.",
            asked=f"{call.name} with a {caller.role} token",
            fix=f"It takes a {' or '.join(sorted(call.roles))} token.",
        )
    worker_id = getattr(request, "worker_id", None)
    if caller.role is Role.WORKER and worker_id is not None and worker_id != caller.worker_id:
        raise NotAuthorized("This token speaks for another worker.", asked=f"worker {worker_id}")
