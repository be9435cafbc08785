"""How long each statement of a cell took in this kernel. IPython runs a cell's top-level statements one by one.

Runs in the kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import CodeType
from typing import Any

from gpulayer.bundle.executing import Position
from gpulayer_jupyter.export.history import HistoryRecorder, Run
from gpulayer_jupyter.export.pieces import Piece

KEPT_FROM_SECONDS = 0.1
"""What took less is not worth remembering."""


class StatementTimes:
    """The times of one shell's statements; `start` and `stop` take their place in it.

    Args:
        shell: IPython's.
        recorder: whose runs they are of.
    """

    def __init__(self, shell: Any, recorder: HistoryRecorder) -> None:
        self._shell = shell
        self._recorder = recorder
        self._times: dict[Run, list[tuple[Position, float]]] = {}
        self._timed: set[Run] = set()
        self._ours: Any = None
        self._theirs: Any = None

    def start(self) -> None:
        original = self._shell.run_code
        self._theirs = vars(self._shell).get("run_code")

        async def run_code(code: CodeType, *arguments: Any, **options: Any) -> Any:
            run = self._recorder.current
            if run is None or run in self._timed:  # a statement that runs cells of its own is timed as a whole
                return await original(code, *arguments, **options)
            began = time.perf_counter()
            self._timed.add(run)
            try:
                return await original(code, *arguments, **options)
            finally:
                self._timed.discard(run)
                seconds = time.perf_counter() - began
                kept = self._times.setdefault(run, [])
                if seconds >= KEPT_FROM_SECONDS:
                    kept.append(((_first_position(code),), seconds))

        self._ours = self._shell.run_code = run_code

    def stop(self) -> None:
        # Where somebody has put theirs above ours, taking ours away would take theirs, too.
        if self._ours is not None and vars(self._shell).get("run_code") is self._ours:
            del self._shell.run_code
            if self._theirs is not None:
                self._shell.run_code = self._theirs

    def lookup(self) -> Callable[[Piece], float | None]:
        """From statements to seconds; None of those that ran before the extension was loaded."""
        runs = {run.cell: times for run, times in self._times.items()}

        def seconds_of(piece: Piece) -> float | None:
            times = runs.get(piece.cell)
            if times is None or not piece.spans:
                return None
            start, end = piece.spans[0]
            return sum(seconds for position, seconds in times if start <= position[0] < end)

        return seconds_of


def _first_position(code: CodeType) -> tuple[int, int]:
    positions = ((line, column) for line, _, column, _ in code.co_positions() if line and column is not None)
    return min(positions, default=(1, 0))
