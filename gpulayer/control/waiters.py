"""Who waits for what, in memory: a signal on a topic wakes those who watch it, and nobody else.

Nothing is decided here: who is woken asks the store again. A watch begins before the first look at the store and keeps a
signal that comes between that look and the wait, so no wake-up is lost. Runs in the control plane's asyncio loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from gpulayer.errors import Interrupted
from gpulayer.settings import LONG_POLL_SECONDS

T = TypeVar("T")

EVERY_TOPIC = "*"


class Watch:
    """One caller's interest in some topics, made by `Waiters.watch`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._signalled = False
        self._closed = False
        self._future: asyncio.Future[None] | None = None

    def fire(self, *, closing: bool = False) -> None:
        self._signalled = True
        self._closed = self._closed or closing
        _resolve(self._future)

    async def changed(self, seconds: float) -> bool:
        """Wait until a topic was signalled since the last call; False when `seconds` end first.

        Raises:
            Interrupted: the control plane is closing.
        """
        if not self._signalled:
            self._future = self._loop.create_future()
            timer = self._loop.call_later(seconds, _resolve, self._future)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        if self._closed:
            raise _closing()
        signalled, self._signalled = self._signalled, False
        return signalled


class Waiters:
    """All watches of one control plane."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watches: dict[str, set[Watch]] = {}
        self._closed = False

    def __len__(self) -> int:
        """How many watches there are, counted once for each of their topics."""
        return sum(len(watches) for watches in self._watches.values())

    def is_watched(self, topic: str) -> bool:
        """Whether anyone waits for this topic."""
        return topic in self._watches

    @contextmanager
    def watch(self, *topics: str) -> Iterator[Watch]:
        """Watch these topics while the block runs; without any, every topic."""
        if self._closed:
            raise _closing()
        watch = Watch(self._loop)
        for topic in topics or (EVERY_TOPIC,):
            self._watches.setdefault(topic, set()).add(watch)
        try:
            yield watch
        finally:
            for topic in topics or (EVERY_TOPIC,):
                self._forget(topic, watch)

    def signal(self, *topics: str) -> None:
        """Wake who watches one of these topics; called in the loop."""
        for topic in topics:
            for watch in tuple(self._watches.get(topic, ())):
                watch.fire()
        if topics:
            for watch in tuple(self._watches.get(EVERY_TOPIC, ())):
                watch.fire()

    async def hold(self, topics: Iterable[str], *, wait: float, check: Callable[[], Awaitable[tuple[T, bool]]]) -> T:
        """Ask `check` until it says that its answer will do or `wait` seconds have passed; asked again only after a signal.

        The last answer is returned either way. No call is held over `LONG_POLL_SECONDS`, whatever it asks for.
        """
        deadline = self._loop.time() + min(max(wait, 0.0), LONG_POLL_SECONDS)
        with self.watch(*topics) as watch:
            while True:
                answer, will_do = await check()
                left = deadline - self._loop.time()
                if will_do or left <= 0 or not await watch.changed(left):
                    return answer

    def close(self) -> None:
        """End every wait with `Interrupted`; no watch can begin after this."""
        self._closed = True
        for watches in tuple(self._watches.values()):
            for watch in tuple(watches):
                watch.fire(closing=True)

    def _forget(self, topic: str, watch: Watch) -> None:
        watches = self._watches.get(topic, set())
        watches.discard(watch)
        if not watches:
            self._watches.pop(topic, None)


def _resolve(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


def _closing() -> Interrupted:
    return Interrupted("The control plane is closing.", fix="Ask the next one of this home.")
