"""The calls that are held open at this moment: bounded for each identity, ended when the server stops.

Runs in the Jupyter server's loop; every method is called on it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from gpulayer.control import Caller
from gpulayer.errors import TooManyCalls

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCallLimits:
    """How many calls one identity may have waiting at once.

    Args:
        client: for a user; a cell that follows a job holds four, a sweep one for each job.
        worker: for a worker: one acquire, and a rendezvous for each task that is starting.
    """

    client: int = 256
    worker: int = 64


class HeldCalls:
    """Counts and ends waiting calls.

    A task that waits stays its handler's own: the handler cancels it when its client goes away, `end_all` when the server
    stops.
    """

    def __init__(self, limits: HeldCallLimits) -> None:
        self._limits = limits
        self._held: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.ending = False

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a call as a task that `end_all` ends."""
        task = asyncio.ensure_future(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @contextmanager
    def count(self, caller: Caller) -> Iterator[None]:
        """Count one held call of this caller.

        Raises:
            TooManyCalls: the caller has as many as it may have.
        """
        is_worker = caller.worker_id is not None
        identity = f"worker:{caller.worker_id}" if is_worker else f"{caller.role}:{caller.user}"
        limit = self._limits.worker if is_worker else self._limits.client
        option = "max_held_calls_of_a_worker" if is_worker else "max_held_calls"
        if self._held[identity] >= limit:
            raise TooManyCalls(
                "Too many calls of this identity are waiting.",
                found=f"{self._held[identity]} held calls, the most there may be",
                fix=f"End some of them, or raise GPUlayerExtension.{option}.",
            )
        self._held[identity] += 1
        try:
            yield
        finally:
            self._held[identity] -= 1
            if not self._held[identity]:
                del self._held[identity]

    async def end_all(self) -> None:
        """Cancel everything that waits, and return once it has ended; calls that come later are refused by their handler."""
        self.ending = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
