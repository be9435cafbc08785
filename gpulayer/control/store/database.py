"""One home's database: a single writer thread that commits in groups, and a few threads that read.

The asyncio loop hands functions over and gets their results back; no SQL runs on the loop. SQLite allows one writer at a
time anyway, so writes that were queued while the one before was committed share a transaction.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.exc import SQLAlchemyError

from gpulayer.control.store import changes
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.memory import Memory
from gpulayer.control.store.readers import READER_THREADS, Readers
from gpulayer.errors import GPUlayerError, Interrupted
from gpulayer.settings import FOREIGN_CHANGES_SECONDS

T = TypeVar("T")

GROUP_LIMIT = 256  # keeps one commit short enough for writers of other processes
SYNC_SECONDS = 1.0
"""What a power cut may undo where commits are not synced one by one: a second, which costs a sync a second at the most."""
CHECKPOINT_PAGES = 4000  # 16 MB of log
BUSY_TIMEOUT_SECONDS = 60.0  # several processes on one home queue for the write lock; a write itself takes milliseconds

_log = logging.getLogger(__name__)

_Write = tuple[Callable[[StoreConnection], Any], "asyncio.Future[Any]"]
_Outcome = tuple["asyncio.Future[Any]", Any, Exception | None]

Ask = Callable[[StoreConnection, Sequence[str]], Any]
"""Asks, in the writer's transaction, what those who wait for these topics want to know; what it returns goes to `Wake`."""
Wake = Callable[[Sequence[str], Any], None]
"""Wakes, in the loop, those who wait for these topics; with what `Ask` found, or None for what others committed."""


def make_engine(path: Path, *, read_only: bool = False, synchronous: str = "normal") -> Engine:
    """An engine whose transactions are begun by hand: `BEGIN IMMEDIATE` is what keeps two writers from colliding later."""
    assert synchronous in ("off", "normal", "full", "extra")
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        isolation_level="AUTOCOMMIT",
        connect_args={"timeout": BUSY_TIMEOUT_SECONDS, "check_same_thread": False},
        pool_size=READER_THREADS,
        max_overflow=0,
    )

    def prepare(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        # In WAL mode a commit survives the death of the process without a sync; a power cut may undo the last ones, whole.
        connection.execute(f"PRAGMA synchronous={synchronous}")
        # Most commits rewrite the same pages, so a checkpoint of four times as many commits costs little more (ADR-0031).
        connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        if read_only:
            connection.execute("PRAGMA query_only=ON")

    event.listen(engine, "connect", prepare)
    return engine


class Database:
    """The open database of one control plane; made in the loop that it serves.

    Args:
        path: of a database whose schema is up to date.
        wake: called with the topics of every commit, ours and others'.
        ask: called before each commit of ours that has topics.
        synchronous: `full` syncs each group before its writes are answered, `normal` within `SYNC_SECONDS` of that (ADR-0031).
    """

    def __init__(self, path: Path, *, wake: Wake, ask: Ask | None = None, synchronous: Literal["normal", "full"] = "normal") -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = wake
        self._ask = ask
        self._closed = False
        self._lock = threading.Lock()
        self._refusal: Callable[[], Interrupted] | None = None  # why nothing more is taken; changed under the lock
        self._in_hand: list[_Write] = []  # the writer's present group
        self._writes: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._log_path = path.with_name(f"{path.name}-wal")
        self._commits_unsynced = synchronous == "normal"
        # What the one before committed last is on no disk for certain, if that was killed.
        self._unsynced_since: float | None = time.monotonic()
        self._writer_engine = make_engine(path, synchronous=synchronous)
        self._reader_engine = make_engine(path, read_only=True)
        self._readers = Readers(self._reader_engine)
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._writer = threading.Thread(target=self._run_writer, name="gpulayer-writer", daemon=True)
        self._writer.start()

    async def ready(self) -> None:
        """Wait until foreign changes are being watched; what others commit after this is not missed."""
        await self._opened

    async def write(self, change: Callable[[StoreConnection], T]) -> T:
        """Run `change` in the writer's transaction, and return its result once that is committed.

        What it raises undoes its own changes only, and is raised here.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        with self._lock:  # what is queued after the writer's last look would wait for ever
            if self._refusal is not None:
                raise self._refusal()
            self._writes.put((change, future))
        return await future

    async def read(self, question: Callable[[StoreConnection], T]) -> T:
        """Run `question` on a snapshot, in a reader's thread."""
        future: asyncio.Future[T] = self._loop.create_future()

        def answer(value: Any, error: Exception | None) -> None:
            self._tell_loop(_settle, future, value, error)

        with self._lock:  # readers end once nothing more can be asked
            if self._refusal is not None:
                raise self._refusal()
            self._readers.ask(question, answer)
        return await future

    async def close(self) -> None:
        """Commit what is queued, end the threads and close every connection, also where the writer ended before."""
        if self._closed:
            return
        self._closed = True
        self._refuse(_closed)
        self._writes.put(None)
        await asyncio.to_thread(self._end_threads)

    def _end_threads(self) -> None:
        self._writer.join()
        self._readers.close()
        # The last connection to a home folds the log into the database and syncs both; any other leaves the log as it is.
        try:
            _sync(self._log_path)
        except OSError as error:
            _note_sync(None, error)
        self._writer_engine.dispose()
        self._reader_engine.dispose()

    def _refuse(self, refusal: Callable[[], Interrupted]) -> None:
        with self._lock:
            self._refusal = self._refusal or refusal

    # ---- the writer's thread

    def _run_writer(self) -> None:
        try:
            with self._writer_engine.connect() as opened:
                connection = StoreConnection(opened, Memory())
                foreign = changes.ForeignChanges(connection)
                self._tell_loop(_settle, self._opened, None, None)
                self._serve_writes(connection, foreign)
        except Exception as error:  # noqa: BLE001  # top of the thread: callers would wait for an answer for ever
            _log.exception("The writer of the database ended; every later write is refused.")
            self._refuse(_writer_ended)
            self._tell_loop(_settle, self._opened, None, error)
            self._refuse_queued()

    def _serve_writes(self, connection: StoreConnection, foreign: changes.ForeignChanges) -> None:
        look_at = time.monotonic() + FOREIGN_CHANGES_SECONDS
        stopping = False
        while not stopping:
            group, stopping = self._next_group(look_at - time.monotonic())
            if group:
                self._in_hand = group
                changed_before = connection.driver.total_changes
                committed = _commit_group(connection, group, self._ask)
                foreign.note_own(committed.change_ids)
                self._tell_loop(self._deliver, committed)
                self._in_hand = []
                has_changed = connection.driver.total_changes != changed_before
                if has_changed and self._commits_unsynced and self._unsynced_since is None:
                    self._unsynced_since = time.monotonic()
                # Kept until the next write, results and requests of the last one would outlive those who asked.
                del group, committed
            if time.monotonic() >= look_at:
                self._look_at_foreign(foreign)
                self._sync_log_if_due()
                look_at = time.monotonic() + FOREIGN_CHANGES_SECONDS

    def _look_at_foreign(self, foreign: changes.ForeignChanges) -> None:
        try:
            topics = foreign.topics()
        except (SQLAlchemyError, sqlite3.Error):
            # A lock or a read that failed passes; the next look reads from where the last good one ended.
            _log.exception("Changes of other processes could not be read; they are looked for again.")
            return
        if foreign.has_found_commits and self._unsynced_since is None:
            # Whoever made them may be killed before its own sync; they are as old as the look before this one at the most.
            self._unsynced_since = time.monotonic() - FOREIGN_CHANGES_SECONDS
        if topics:
            self._tell_loop(self._wake, topics, None)

    def _sync_log_if_due(self) -> None:
        """Have a reader's thread bring what was committed to the disk; the writer does not wait for that."""
        if self._unsynced_since is not None and time.monotonic() - self._unsynced_since >= SYNC_SECONDS - FOREIGN_CHANGES_SECONDS:
            self._unsynced_since = None
            self._readers.ask(lambda _: _sync(self._log_path), _note_sync)

    def _next_group(self, seconds: float) -> tuple[list[_Write], bool]:
        """What is queued, waiting up to `seconds` for the first; the flag says that it is the last group."""
        group: list[_Write] = []
        try:
            entry = self._writes.get(timeout=max(seconds, 0.0))
            while entry is not None:
                group.append(entry)
                if len(group) == GROUP_LIMIT:
                    return group, False
                entry = self._writes.get_nowait()
        except queue.Empty:
            return group, False
        return group, True

    def _refuse_queued(self) -> None:
        refused: list[_Write | None] = [*self._in_hand]
        try:
            while True:
                refused.append(self._writes.get_nowait())
        except queue.Empty:
            pass  # and nothing follows: `write` takes nothing more
        for entry in refused:
            if entry is not None:
                self._tell_loop(_settle, entry[1], None, _writer_ended())

    def _tell_loop(self, callback: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            # The loop ended without closing its control plane: what was committed stays, and nobody waits for the answer.
            _log.debug("The loop of this database is closed.")

    def _deliver(self, committed: _Committed) -> None:
        try:
            if committed.topics:
                self._wake(committed.topics, committed.answers)
        finally:
            for future, value, error in committed.outcomes:
                _settle(future, value, error)


@dataclass(slots=True)
class _Committed:
    """What a group of writes came to.

    Args:
        topics: those whose waiters are to be woken.
        answers: what `Ask` found for them.
    """

    outcomes: list[_Outcome]
    change_ids: range = range(0)
    topics: Sequence[str] = ()
    answers: Any = None


def _commit_group(connection: StoreConnection, group: list[_Write], ask: Ask | None) -> _Committed:
    """Commit the writes of a group together; one that raises is undone alone."""
    driver, memory = connection.driver, connection.memory
    assert memory is not None, "the writer has one"
    connection.take_emitted()
    outcomes: list[_Outcome] = []
    topics: dict[str, bool] = {}
    try:
        driver.execute("BEGIN IMMEDIATE")
        memory.check(connection)
        is_alone = len(group) == 1  # then the transaction itself is its savepoint
        for change, future in group:
            if not is_alone:
                driver.execute("SAVEPOINT one_write")
            changed_before = driver.total_changes
            try:
                outcomes.append((future, change(connection), None))
            except Exception as error:  # noqa: BLE001  # whatever it is belongs to that write's caller; the group goes on
                connection.take_emitted()
                # A call that is refused before it has changed anything is no reason to read a large fleet again.
                if driver.total_changes != changed_before or not isinstance(error, GPUlayerError):
                    memory.forget()
                outcomes.append((future, None, error))
                if is_alone:
                    driver.rollback()
                    return _Committed(outcomes)
                driver.execute("ROLLBACK TO one_write")
            for topic, is_to_wake in connection.take_emitted().items():
                topics[topic] = is_to_wake or topics.get(topic, False)
            if not is_alone:
                driver.execute("RELEASE one_write")
        committed = _Committed(outcomes)
        if topics:
            committed.change_ids = changes.append(connection, list(topics))
            committed.topics = [topic for topic, is_to_wake in topics.items() if is_to_wake]
            if ask is not None:
                committed.answers = ask(connection, committed.topics)
        driver.execute("COMMIT")
    except (SQLAlchemyError, sqlite3.Error) as error:
        # The disk is full, or the lock was not to be had: nothing of the group is stored, and each caller hears why.
        _log.exception("A group of writes was not committed.")
        memory.forget()
        driver.rollback()
        return _Committed([(future, None, error) for _, future in group])
    return committed


def _sync(log_path: Path) -> None:
    for path in (log_path, log_path.parent):  # the folder too: the log is a file that every first opening makes anew
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return  # all of it went into the database, which that has synced
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _note_sync(_: Any, error: Exception | None) -> None:
    if error is not None:
        _log.error("The database's log could not be synced; after a power cut the last commits may be missing.", exc_info=error)


def _settle(future: asyncio.Future[Any], value: Any, error: Exception | None) -> None:
    if future.done():  # its caller is gone; the change stands
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)


def _closed() -> Interrupted:
    return Interrupted("The control plane is closed.", fix="Ask the next one of this home.")


def _writer_ended() -> Interrupted:
    return Interrupted("The writer of this home's database ended by a fault.", fix="Its log says which; open the home again.")
