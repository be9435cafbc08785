"""Reads what the next export will want while the kernel waits for its user: cells that have run, and local modules that they import.

What is read is kept where the export looks for it (`import_names.py`, `module_bodies.py`), by content: an edit afterwards is read
then. Runs in the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gpulayer.errors import GPUlayerError, NotExportable
from gpulayer_jupyter.export.history import HistoryRecorder
from gpulayer_jupyter.export.local_modules import ModuleSearch
from gpulayer_jupyter.export.module_bodies import Sources
from gpulayer_jupyter.export.pieces import Piece

logger = logging.getLogger(__name__)

AT_ONCE_SECONDS = 0.01
"""For so long a message to the kernel may have to wait."""


class ReadingAhead:
    """Of one shell; `start` and `stop` register and remove its hook.

    Args:
        shell: IPython's.
        recorder: what has run in it.
        search: makes a search for local modules with the surroundings of the moment.
    """

    def __init__(self, shell: Any, recorder: HistoryRecorder, search: Callable[[], ModuleSearch]) -> None:
        self._shell = shell
        self._recorder = recorder
        self._search = search
        self._looked_at = 0  # statements of the history
        self._unreadable = False
        self._reading: Iterator[None] | None = None
        self.done: asyncio.Event | None = None
        """Of what has been begun last."""

    def start(self) -> None:
        self._shell.events.register("post_run_cell", self._begin)

    def stop(self) -> None:
        self._reading = None
        self._shell.events.unregister("post_run_cell", self._begin)

    def _begin(self, result: Any) -> None:  # noqa: ARG002 - the event's
        # A subshell's thread has a loop as well, and may not read what the main thread reads.
        if self._unreadable or threading.current_thread() is not threading.main_thread():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # IPython in a terminal has no moments of its own
        self.done = asyncio.Event()
        # One at a time: an earlier one, which knows less of the history, would begin the kept pass anew.
        self._reading = self._steps()
        loop.call_soon(self._go_on, loop, self._reading, self.done)

    def _go_on(self, loop: asyncio.AbstractEventLoop, steps: Iterator[None], done: asyncio.Event) -> None:
        until = time.perf_counter() + AT_ONCE_SECONDS
        try:
            for _ in steps if steps is self._reading else ():
                if time.perf_counter() > until:
                    loop.call_soon(self._go_on, loop, steps, done)
                    return
        except Exception:  # the top of what runs in the loop: somebody who submits meets it again, and nobody else is to be bothered
            self._unreadable = True
            logger.debug("reading ahead ended", exc_info=True)
        done.set()

    def _steps(self) -> Iterator[None]:
        try:
            yield from self._recorder.read()
        except (NotExportable, RecursionError, MemoryError):
            self._unreadable = True  # every export refuses this history, and says where
            return
        pieces, _ = self._recorder.pieces()
        with contextlib.suppress(GPUlayerError, OSError, RecursionError, MemoryError):  # the export that needs the module refuses it
            yield from self._read_modules(pieces[self._looked_at :])
        self._looked_at = len(pieces)

    def _read_modules(self, pieces: Sequence[Piece]) -> Iterator[None]:
        search = self._search()
        for _ in search.follow(node for piece in pieces for node in piece.nodes):
            yield
        sources = Sources(search.found.sources)
        for name in search.found.sources:
            sources.module(name)
            yield
