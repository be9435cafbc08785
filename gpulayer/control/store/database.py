"""One home's database: a single writer thread that commits in groups, and a few threads that read.

The asyncio loop hands functions over and gets their results back; no SQL runs on the loop. SQLite allows one writer at a
time anyway, so queued writes share a transaction, each in a savepoint of its own.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import SQLAlchemyError

from gpulayer.control.store import changes
from gpulayer.errors import Interrupted
from gpulayer.settings import FOREIGN_CHANGES_SECONDS

T = TypeVar("T")

READER_THREADS = 3
GROUP_LIMIT = 256  # keeps one commit short enough for writers of other processes
BUSY_TIMEOUT_SECONDS = 60.0  # several processes on one home queue for the write lock; a write itself takes milliseconds

_log = logging.getLogger(__name__)

_Write = tuple[Callable[[Connection], Any], "asyncio.Future[Any]"]
_Outcome = tuple["asyncio.Future[Any]", Any, Exception | None]


def make_engine(path: Path, *, read_only: bool = False) -> Engine:
    """An engine whose transactions are begun by hand: `BEGIN IMMEDIATE` is what keeps two writers from colliding later."""
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
        connection.execute("PRAGMA synchronous=NORMAL")
        if read_only:
            connection.execute("PRAGMA query_only=ON")

    event.listen(engine, "connect", prepare)
    return engine


class Database:
    """The open database of one control plane; made in the loop that it serves.

    Args:
        path: of a database whose schema is up to date.
        wake: called in the loop with the topics of every commit, ours and others'.
    """

    def __init__(self, path: Path, *, wake: Callable[[Sequence[str]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = wake
        self._closed = False
        self._lock = threading.Lock()
        self._refusal: Callable[[], Interrupted] | None = None  # why nothing more is taken; changed under the lock
        self._in_hand: list[_Write] = []  # the writer's present group
        self._writes: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._writer_engine = make_engine(path)
        self._reader_engine = make_engine(path, read_only=True)
        self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="gpulayer-reader")
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._writer = threading.Thread(target=self._run_writer, name="gpulayer-writer", daemon=True)
        self._writer.start()

    async def ready(self) -> None:
        """Wait until foreign changes are being watched; what others commit after this is not missed."""
        await self._opened

    async def write(self, change: Callable[[Connection], T]) -> T:
        """Run `change` in the writer's transaction, and return its result once that is committed.

        What it raises undoes its own changes only, and is raised here.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        with self._lock:  # what is queued after the writer's last look would wait for ever
            if self._refusal is not None:
                raise self._refusal()
            self._writes.put((change, future))
        return await future

    async def read(self, question: Callable[[Connection], T]) -> T:
        """Run `question` on a snapshot, in a reader's thread."""
        if self._refusal is not None:
            raise self._refusal()
        return await self._loop.run_in_executor(self._readers, self._read, question)

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
        self._readers.shutdown(wait=True)
        self._writer_engine.dispose()
        self._reader_engine.dispose()

    def _refuse(self, refusal: Callable[[], Interrupted]) -> None:
        with self._lock:
            self._refusal = self._refusal or refusal

    def _read(self, question: Callable[[Connection], T]) -> T:
        with self._reader_engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            try:
                return question(connection)
            finally:
                connection.exec_driver_sql("ROLLBACK")  # a read leaves nothing to commit

    # ---- the writer's thread

    def _run_writer(self) -> None:
        try:
            with self._writer_engine.connect() as connection:
                foreign = changes.ForeignChanges(connection)
                self._tell_loop(_set_result, self._opened)
                self._serve_writes(connection, foreign)
        except Exception as error:  # noqa: BLE001  # top of the thread: callers would wait for an answer for ever
            _log.exception("The writer of the database ended; every later write is refused.")
            self._refuse(_writer_ended)
            self._tell_loop(_set_error, self._opened, error)
            self._refuse_queued()

    def _serve_writes(self, connection: Connection, foreign: changes.ForeignChanges) -> None:
        look_at = time.monotonic() + FOREIGN_CHANGES_SECONDS
        stopping = False
        while not stopping:
            group, stopping = self._next_group(look_at - time.monotonic())
            if group:
                self._in_hand = group
                outcomes, emitted = _commit_group(connection, group)
                foreign.note_own([change_id for change_id, _ in emitted])
                self._tell_loop(self._deliver, outcomes, list(dict.fromkeys(topic for _, topic in emitted)))
                self._in_hand = []
            if time.monotonic() >= look_at:
                self._look_at_foreign(foreign)
                look_at = time.monotonic() + FOREIGN_CHANGES_SECONDS

    def _look_at_foreign(self, foreign: changes.ForeignChanges) -> None:
        try:
            topics = foreign.topics()
        except SQLAlchemyError:
            # A lock or a read that failed passes; the next look reads from where the last good one ended.
            _log.exception("Changes of other processes could not be read; they are looked for again.")
            return
        if topics:
            self._tell_loop(self._wake, topics)

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
                self._tell_loop(_set_error, entry[1], _writer_ended())

    def _tell_loop(self, callback: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            # The loop ended without closing its control plane: what was committed stays, and nobody waits for the answer.
            _log.debug("The loop of this database is closed.")

    def _deliver(self, outcomes: list[_Outcome], topics: list[str]) -> None:
        self._wake(topics)
        for future, value, error in outcomes:
            if future.done():  # its caller is gone; the change stands
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)


def _commit_group(connection: Connection, group: list[_Write]) -> tuple[list[_Outcome], list[tuple[int, str]]]:
    """Commit the writes of a group together; one that raises is undone alone."""
    emitted = changes.emitted_in(connection)
    emitted.clear()
    outcomes: list[_Outcome] = []
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        for change, future in group:
            before = len(emitted)
            connection.exec_driver_sql("SAVEPOINT one_write")
            try:
                outcomes.append((future, change(connection), None))
            except Exception as error:  # noqa: BLE001  # whatever it is belongs to that write's caller; the group goes on
                connection.exec_driver_sql("ROLLBACK TO one_write")
                del emitted[before:]
                outcomes.append((future, None, error))
            connection.exec_driver_sql("RELEASE one_write")
        connection.exec_driver_sql("COMMIT")
    except SQLAlchemyError as error:
        # The disk is full, or the lock was not to be had: nothing of the group is stored, and each caller hears why.
        _log.exception("A group of writes was not committed.")
        connection.rollback()
        return [(future, None, error) for _, future in group], []
    return outcomes, list(emitted)


def _set_result(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _set_error(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _closed() -> Interrupted:
    return Interrupted("The control plane is closed.", fix="Ask the next one of this home.")


def _writer_ended() -> Interrupted:
    return Interrupted("The writer of this home's database ended by a fault.", fix="Its log says which; open the home again.")
