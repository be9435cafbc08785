"""What this kernel executed, in order: each run of each cell, with the statement that failed where one did.

Runs from before `%load_ext gpulayer` come from IPython's own history; later ones are recorded as they happen. The notebook
file is never read. Runs in the kernel.
"""

from __future__ import annotations

import ast
import hashlib
import re
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from gpulayer_jupyter.export.pieces import Piece, ReadCell, Transform, read_cell

UNCLEAR = "its cell raised before `%load_ext gpulayer`, and how far it had come is not known"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(slots=True)
class Run:
    """One run of one cell.

    Args:
        cell: IPython's execution count.
        failed_line: line of the transformed text that raised; None where nothing did.
        finished: False while the cell runs.
        nothing_ran: refused before its first statement (a syntax error).
        unclear: it raised, and nobody knows where.
        afterwards: statements that stand for what GPUlayer itself did to the kernel's names when the cell had run.
    """

    cell: int
    raw: str
    failed_line: int | None = None
    finished: bool = True
    nothing_ran: bool = False
    unclear: bool = False
    afterwards: list[Piece] = field(default_factory=list)


@dataclass(slots=True)
class History:
    """Runs in order; `pieces()` are the statements that ran."""

    runs: list[Run] = field(default_factory=list)
    _read: dict[int, tuple[tuple[str, int | None], ReadCell]] = field(default_factory=dict)

    def pieces(self, transform: Transform, *, before: Run | None = None) -> tuple[list[Piece], dict[str, str]]:
        """Statements that ran, and names that only ranks of earlier jobs bound → where."""
        found: list[Piece] = []
        remote: dict[str, str] = {}
        for position, run in enumerate(self.runs):
            if run is before:
                break
            if run.nothing_ran or not run.finished:
                continue
            read = self._read_run(position, run, transform)
            found.extend([*read.pieces, *run.afterwards])
            remote.update(read.remote)
        return found, remote

    def _read_run(self, position: int, run: Run, transform: Transform) -> ReadCell:
        # A finished run never changes, and long sessions would read thousands of cells again at each submit.
        key = (run.raw, run.failed_line)
        kept = self._read.get(position)
        if kept is not None and kept[0] == key:
            return kept[1]
        try:
            read = read_cell(run.raw, cell=run.cell, transform=transform, failed_line=run.failed_line)
        except SyntaxError:
            read = ReadCell()
        if run.unclear:
            read.pieces = [replace(piece, refusal=UNCLEAR) for piece in read.pieces]
        self._read[position] = (key, read)
        return read


class HistoryRecorder:
    """Keeps the `History` of one shell; `start` and `stop` register and remove its hooks."""

    def __init__(self, shell: Any) -> None:
        self.history = History(_runs_so_far(shell))
        self._shell = shell
        self._open: list[Run] = []
        self._weights: Path | None = None

    def remember_weights(self, name: str, file: Path) -> None:
        """The running cell left other weights in a model than its source gives it: keep them, so that later jobs get them."""
        if self.current is None:
            return
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        if self._weights is None:
            self._weights = Path(tempfile.mkdtemp(prefix="gpulayer-weights-"))
            weakref.finalize(self, shutil.rmtree, self._weights, ignore_errors=True)
        kept = self._weights / f"{digest}.safetensors"
        shutil.copyfile(file, kept)
        path = f"weights/{digest[:16]}.safetensors"
        source = (
            f"# the weights that the job of this cell left in {name}\n"
            f'{name}.load_state_dict(__import__("safetensors.torch").torch.load_file('
            f'__import__("pathlib").Path(__file__).with_name("weights") / "{digest[:16]}.safetensors"))\n'
        )
        piece = Piece(self.current.cell, 1, source, ast.parse(source).body[0], 1, files={path: kept})
        self.current.afterwards.append(piece)

    def start(self) -> None:
        self._shell.events.register("pre_run_cell", self._before)
        self._shell.events.register("post_run_cell", self._after)

    def stop(self) -> None:
        self._shell.events.unregister("pre_run_cell", self._before)
        self._shell.events.unregister("post_run_cell", self._after)

    @property
    def current(self) -> Run | None:
        """The run that is going on; the innermost where cells run cells."""
        if self._open:
            return self._open[-1]
        last = self.history.runs[-1] if self.history.runs else None
        return last if last is not None and not last.finished else None

    def _before(self, info: Any) -> None:
        manager = self._shell.history_manager
        # IPython versions differ in whether the count has grown by now; its list of inputs has not.
        number = len(manager.input_hist_raw) if manager.enabled else self._shell.execution_count
        run = Run(cell=number, raw=info.raw_cell or "", finished=False)
        self.history.runs.append(run)
        self._open.append(run)

    def _after(self, result: Any) -> None:
        # The run that holds `%load_ext gpulayer` was read from IPython's history, and nobody saw it begin.
        run = self._open.pop() if self._open else self.current
        if run is None or run.raw != (result.info.raw_cell or ""):
            return
        run.finished = True
        run.cell = result.execution_count or run.cell
        run.nothing_ran = result.error_before_exec is not None
        if result.error_in_exec is not None:
            run.failed_line = _failed_line(result.error_in_exec.__traceback__, self._shell.user_ns)


def _failed_line(traceback: TracebackType | None, namespace: dict[str, Any]) -> int | None:
    """The line of the cell's own frame; the first frame with the user's globals is the cell."""
    while traceback is not None:
        if traceback.tb_frame.f_globals is namespace:
            return traceback.tb_lineno
        traceback = traceback.tb_next
    return 1  # it raised before any line of it ran


def _runs_so_far(shell: Any) -> list[Run]:
    manager = shell.history_manager
    exceptions = getattr(manager, "exceptions", {})  # from IPython 9 on
    runs = []
    for cell, raw in enumerate(manager.input_hist_raw):
        if cell == 0 or not raw:
            continue
        run = Run(cell=cell, raw=raw)
        if cell in exceptions:
            run.failed_line = _failed_line_of_text(exceptions[cell], cell)
            run.nothing_ran = exceptions[cell].get("ename") in ("SyntaxError", "IndentationError")
            run.unclear = run.failed_line is None
        runs.append(run)
    if runs and _is_running(shell, runs[-1]):
        runs[-1].finished = False
    return runs


def _is_running(shell: Any, run: Run) -> bool:
    last = getattr(shell, "last_execution_result", None)
    return last is None or last.execution_count != run.cell


def _failed_line_of_text(stored: dict[str, Any], cell: int) -> int | None:
    text = _ANSI.sub("", "\n".join(stored.get("traceback", ())))
    found = re.search(rf"(?:Cell In\s?\[{cell}\], line |<ipython-input-{cell}-\w+>:)(\d+)", text)
    return int(found.group(1)) if found is not None else None


def runs_of(sources: Sequence[str]) -> History:
    """A history in which these cells ran, numbered from 1; for programs and tests that have no shell."""
    return History([Run(cell=number, raw=raw) for number, raw in enumerate(sources, start=1)])
