"""Bugs that a chaos run must find, planted into the server or the worker of `chaos_hosts` and nowhere else.

Each is there while the file that `CHAOS_PLANT` names holds its name, so that one server serves several scenarios.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def is_planted(name: str) -> bool:
    """Whether this bug is to show at this moment."""
    return Path(os.environ["CHAOS_PLANT"]).read_text() == name


def without_a_fence() -> None:
    """Output of an attempt is stored whatever has become of it."""
    from gpulayer.control.store import attempts

    fenced_attempt = attempts.fenced_attempt

    def found(connection: Any, *, task_id: Any, attempt: int, **whose: Any) -> Any:
        if is_planted("without a fence"):
            return attempts.find_attempt(connection, task_id, attempt)
        return fenced_attempt(connection, task_id=task_id, attempt=attempt, **whose)

    attempts.fenced_attempt = found


def acknowledged_when_sent() -> None:
    """An assignment counts as received once it was answered, so that a cut answer loses it."""
    from gpulayer.control import endings
    from gpulayer.control.store import attempts
    from gpulayer.control.worker_calls import WorkerCalls

    acquire = WorkerCalls.acquire_task

    async def acquire_and_confirm(self: Any, **asked: Any) -> Any:
        orders = await acquire(self, **asked)

        def confirm(connection: Any) -> None:
            for item in orders.assignments:
                row = attempts.find_attempt(connection, item.task_id, item.attempt)
                if row is not None and row.state == "placed":
                    endings.confirm_attempt(connection, self._clock.now(), row)

        if orders.assignments and is_planted("acknowledged when sent"):
            await self._database.write(confirm)
        return orders

    WorkerCalls.acquire_task = acquire_and_confirm


def freed_too_early() -> None:
    """An attempt's devices are free once it was ordered to stop, while its processes still use them."""
    from gpulayer.control.store import attempts
    from gpulayer.control.store.tables import reservations

    order_stop = attempts.order_stop

    def order_and_free(connection: Any, row: Any, reason: Any) -> None:
        order_stop(connection, row, reason)
        if not is_planted("freed too early"):
            return
        mine = (reservations.c.job_id == row.job_id, reservations.c.node == row.node, reservations.c.attempt == row.attempt)
        connection.execute(reservations.delete().where(*mine))
        held = attempts.held_devices(connection).get(row.worker_id, {})  # where the control plane keeps them in memory as well
        for device in attempts.devices_of(row):
            held.pop(device.id, None)

    attempts.order_stop = order_and_free


def dropped_chunk() -> None:
    """The worker loses the third chunk of every attempt."""
    from gpulayer.worker.log_backlog import LogBacklog

    take = LogBacklog.take

    def take_but_one(self: Any, limit_bytes: int) -> Any:
        batch = []
        for chunk in take(self, limit_bytes):
            self.chaos_taken = getattr(self, "chaos_taken", 0) + 1
            if self.chaos_taken != 3 or not is_planted("dropped chunk"):
                batch.append(chunk)
        # An empty batch would end the sender.
        return tuple(batch) if batch or self.is_empty else take_but_one(self, limit_bytes)

    LogBacklog.take = take_but_one


ON_THE_SERVER: tuple[Callable[[], None], ...] = (without_a_fence, acknowledged_when_sent, freed_too_early)
ON_THE_WORKER: tuple[Callable[[], None], ...] = (dropped_chunk,)
