"""The threads that read a home's database: a few, started when there is something to read, each with a connection it keeps."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine

from gpulayer.control.store.connection import StoreConnection
from gpulayer.errors import GPUlayerError

READER_THREADS = 3

_log = logging.getLogger(__name__)

Question = Callable[[StoreConnection], Any]
Answer = Callable[[Any, Exception | None], None]


class Readers:
    """Answers questions about the store, each on a snapshot of its own.

    Args:
        engine: read-only; its pool holds a connection for every reader.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._idle = 0  # readers that wait for a question; below 0 more questions are queued than readers wait
        self._threads: list[threading.Thread] = []
        self._questions: queue.SimpleQueue[tuple[Question, Answer] | None] = queue.SimpleQueue()

    def ask(self, question: Question, answer: Answer) -> None:
        """Have a reader run `question`, and call `answer` with what came of it, in the reader's thread.

        Where no reader can be started, `answer` hears so at once, in this thread.
        """
        with self._lock:
            refusal = self._start_reader() if self._idle <= 0 and len(self._threads) < READER_THREADS else None
            if refusal is None:
                self._idle -= 1
                self._questions.put((question, answer))
        if refusal is not None:
            answer(None, refusal)

    def close(self) -> None:
        """Answer what was asked, and end the threads; nothing may be asked after this."""
        for _ in self._threads:
            self._questions.put(None)
        for thread in self._threads:
            thread.join()

    def _start_reader(self) -> RuntimeError | None:
        """Start one more, which counts as idle until it takes a question; returns why there is none at all."""
        thread = threading.Thread(target=self._serve, name=f"gpulayer-reader-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # The process is at its limit of threads. Those that run serve this question as well, later.
            return None if self._threads else error
        self._threads.append(thread)
        self._idle += 1
        return None

    # ---- a reader's thread

    def _serve(self) -> None:
        connection: StoreConnection | None = None
        try:
            while (entry := self._questions.get()) is not None:
                question, answer = entry
                try:
                    if connection is None:
                        connection = StoreConnection(self._engine.connect())
                    found = _read(connection, question)
                except Exception as error:  # noqa: BLE001  # whatever it is belongs to the one who asked; the next is served
                    answer(None, error)
                    if connection is not None and not isinstance(error, GPUlayerError):
                        connection.discard()  # it may be unsound
                        connection = None
                else:
                    answer(found, None)
                    del found
                # Nothing of one question is kept alive until the next one comes.
                del entry, question, answer
                with self._lock:
                    self._idle += 1
        finally:
            if connection is not None:
                connection.close()


def _read(connection: StoreConnection, question: Question) -> Any:
    connection.driver.execute("BEGIN")
    try:
        return question(connection)
    finally:
        connection.driver.rollback()  # a read leaves nothing to commit
