"""Waits of calls on topics: a signal on a topic wakes those who watch it, and nobody else.

A watch begins before the first look at the store and keeps a signal that comes between that look and the wait, so no wake-up
is lost. A watch may hold a `Question`: then the writer asks it in the transaction that touches the topic, and the watch is woken
only where the answer will do, with that answer; who is woken without one asks the store again. All but `ask` runs in the
control plane's asyncio loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gpulayer.control.store.connection import StoreConnection
from gpulayer.errors import GPUlayerError, Interrupted
from gpulayer.settings import LONG_POLL_SECONDS

T = TypeVar("T")

EVERY_TOPIC = "*"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[T]):
    """What a held call wants to know.

    Args:
        key: questions with the same key have the same answer, and are asked once for all who hold them.
        ask: the answer, in a transaction; None where it would not do yet.
    """

    key: Hashable
    ask: Callable[[StoreConnection], T | None]


class Watch:
    """One caller's interest in some topics, made by `Waiters.watch`."""

    __slots__ = ("_closed", "_future", "_is_told", "_loop", "_signalled", "answer", "question")

    def __init__(self, loop: asyncio.AbstractEventLoop, question: Question[Any] | None) -> None:
        self.question = question
        self.answer: Any = None
        self._loop = loop
        self._signalled = False
        self._is_told = False  # something changed, but not what the question waits for
        self._closed = False
        self._future: asyncio.Future[None] | None = None

    def fire(self, answer: Any = None, *, closing: bool = False) -> None:
        self.answer = answer
        self._signalled = True
        self._closed = self._closed or closing
        _resolve(self._future)

    def tell(self) -> None:
        """Its topic changed, and its question would not be answered: it sleeps on."""
        self._is_told = True

    def take_told(self) -> bool:
        """Whether its topics changed since the last look at the store."""
        told, self._is_told = self._is_told, False
        return told

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


Answers = dict[Watch, Any]
"""What the writer found for the watches whose question it asked."""


class Waiters:
    """All watches of one control plane."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()  # the writer looks at the watches too
        self._watches: dict[str, set[Watch]] = {}
        self._closed = False

    def __len__(self) -> int:
        """How many watches there are, counted once for each of their topics."""
        return sum(len(watches) for watches in self._watches.values())

    def is_watched(self, topic: str) -> bool:
        """Whether anyone waits for this topic."""
        return topic in self._watches

    @contextmanager
    def watch(self, *topics: str, question: Question[Any] | None = None) -> Iterator[Watch]:
        """Watch these topics while the block runs; without any, every topic."""
        if self._closed:
            raise _closing()
        watch = Watch(self._loop, question)
        with self._lock:
            for topic in topics or (EVERY_TOPIC,):
                self._watches.setdefault(topic, set()).add(watch)
        try:
            yield watch
        finally:
            with self._lock:
                for topic in topics or (EVERY_TOPIC,):
                    self._forget(topic, watch)

    def ask(self, connection: StoreConnection, topics: Sequence[str]) -> Answers:
        """Ask the questions of those who watch these topics; called by the writer, inside the transaction that changed them."""
        with self._lock:
            watches = [watch for topic in topics for watch in self._watches.get(topic, ()) if watch.question is not None]
        answers: Answers = {}
        found: dict[Hashable, Any] = {}
        for watch in watches:
            assert watch.question is not None
            key = watch.question.key
            if key not in found:
                found[key] = _answer(connection, watch.question)
            if found[key] is not _UNKNOWN:
                answers[watch] = found[key]
        return answers

    def signal(self, *topics: str, answers: Answers | None = None) -> None:
        """Wake who watches one of these topics, those that the writer asked for only with an answer; called in the loop."""
        answers = answers or {}
        for topic in topics:
            for watch in tuple(self._watches.get(topic, ())):
                if watch not in answers:
                    watch.fire()
                elif answers[watch] is None:
                    watch.tell()
                else:
                    watch.fire(answers[watch])
        if topics:
            for watch in tuple(self._watches.get(EVERY_TOPIC, ())):
                watch.fire()

    async def hold(self, topics: Iterable[str], *, wait: float, check: Callable[[], Awaitable[tuple[T, bool]]]) -> T:
        """Ask `check` until it says that its answer will do or `wait` seconds have passed; asked again only after a signal.

        The last answer is returned either way. No call is held over `LONG_POLL_SECONDS`, whatever it asks for.
        """
        deadline = self._deadline(wait)
        with self.watch(*topics) as watch:
            while True:
                answer, will_do = await check()
                left = deadline - self._loop.time()
                if will_do or left <= 0 or not await watch.changed(left):
                    return answer

    async def hold_question(
        self,
        topic: str,
        question: Question[T],
        *,
        wait: float,
        first: Callable[[], Awaitable[tuple[T | None, bool]]],
        look: Callable[[], Awaitable[tuple[T, bool]]],
    ) -> T:
        """As `hold`, woken only with an answer, or where there may be one that the writer was not asked for.

        `look` gives the store's present answer, and whether it will do; `first` is the first look, and may give None in place of
        an answer that will not do.
        """
        deadline = self._deadline(wait)
        with self.watch(topic, question=question) as watch:
            answer, will_do = await first()
            while not will_do:
                left = deadline - self._loop.time()
                if left > 0 and await watch.changed(left):
                    if watch.answer is not None:
                        return watch.answer  # type: ignore[no-any-return]  # the question's own
                    answer, will_do = await look()
                    continue
                if answer is None or watch.take_told():
                    answer, _ = await look()  # the time is over, and what was seen first is not what is there
                break
            assert answer is not None
            return answer

    def close(self) -> None:
        """End every wait with `Interrupted`; no watch can begin after this."""
        self._closed = True
        for watches in tuple(self._watches.values()):
            for watch in tuple(watches):
                watch.fire(closing=True)

    def _deadline(self, wait: float) -> float:
        return self._loop.time() + min(max(wait, 0.0), LONG_POLL_SECONDS)

    def _forget(self, topic: str, watch: Watch) -> None:
        watches = self._watches.get(topic, set())
        watches.discard(watch)
        if not watches:
            self._watches.pop(topic, None)


_UNKNOWN: Any = object()


def _answer(connection: StoreConnection, question: Question[Any]) -> Any:
    try:
        return question.ask(connection)
    except GPUlayerError:
        return _UNKNOWN  # whoever holds it hears that by asking again
    except Exception:  # noqa: BLE001  # a wait must not undo the write that would end it; who holds it hears the fault by asking again
        _log.exception("A held question could not be answered.")
        return _UNKNOWN


def _resolve(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


def _closing() -> Interrupted:
    return Interrupted("The control plane is closing.", fix="Ask the next one of this home.")
