"""What this kernel executed, in order: each run of each cell, with the statement that failed where one did.

Runs from before `%load_ext gpulayer` come from IPython's own history; later ones are recorded as they happen. The notebook
file is never read. Runs in the kernel.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from gpulayer.bundle.executing import executing_place
from gpulayer_jupyter.export.fit_pieces import load_weights_piece, with_kept_fits
from gpulayer_jupyter.export.forward_pass import no_star_names
from gpulayer_jupyter.export.kept_fits import FitFolder, FitLedger, KeptFile
from gpulayer_jupyter.export.kept_pass import KeptPass
from gpulayer_jupyter.export.pieces import Piece, ReadCell, Transform, read_cell
from gpulayer_jupyter.export.run_files import files_that_run

UNCLEAR = "its cell raised before `%load_ext gpulayer`, and how far it had come is not known"
_RUNS_OTHER_CELL = re.compile(r"\s*%%capture\b")
"""IPython runs the body as a cell inside the cell; it has been read with the outer one."""
_PIECES_AT_ONCE = 20
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(slots=True, eq=False)
class Run:
    """One run of one cell.

    Args:
        cell: IPython's execution count.
        failed_line: line of the transformed text that raised; None where nothing did.
        finished: False while the cell runs.
        nothing_ran: refused before its first statement (a syntax error).
        unclear: it raised, and nobody knows where.
        fits: those that ended in the kernel while it ran.
        files: what its `%run` lines ran, by the names that they give.
        afterwards: statements that stand for what GPUlayer itself did to the kernel's names when the cell had run.
    """

    cell: int
    raw: str
    failed_line: int | None = None
    finished: bool = True
    nothing_ran: bool = False
    unclear: bool = False
    fits: FitLedger | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    afterwards: list[Piece] = field(default_factory=list)

    def with_fits(self, pieces: Sequence[Piece]) -> list[Piece]:
        """These statements of the cell, with what its fits left in place of the training."""
        return list(pieces) if self.fits is None else with_kept_fits(pieces, self.fits.statements.values(), cell=self.cell)


@dataclass(slots=True)
class History:
    """Runs in order; `pieces()` are the statements that ran."""

    runs: list[Run] = field(default_factory=list)
    _read: dict[int, tuple[tuple[str, int | None, int], ReadCell]] = field(default_factory=dict)

    def pieces(self, transform: Transform, *, before: Run | None = None) -> tuple[list[Piece], dict[str, str]]:
        """Statements that ran, the ones that raised included, and names that only ranks of earlier jobs bound → where."""
        found: list[Piece] = []
        remote: dict[str, str] = {}
        for position, run in enumerate(self.runs):
            if run is before:
                break
            if run.nothing_ran or not run.finished:
                continue
            read = self._read_run(position, run, transform)
            found.extend(read.pieces)
            remote.update(read.remote)
        return found, remote

    def read(self, transform: Transform) -> Iterator[None]:
        """Read one run after the other, which `pieces` would do at once."""
        for position, run in enumerate(self.runs):
            if run.finished and not run.nothing_ran:
                self._read_run(position, run, transform)
                yield

    def _read_run(self, position: int, run: Run, transform: Transform) -> ReadCell:
        # A finished run never changes, and long sessions would read thousands of cells again at each submit.
        key = (run.raw, run.failed_line, len(run.afterwards))
        kept = self._read.get(position)
        if kept is not None and kept[0] == key:
            return kept[1]
        try:
            read = read_cell(run.raw, cell=run.cell, transform=transform, failed_line=run.failed_line, files=run.files)
        except SyntaxError:
            read = ReadCell()
        if run.unclear:
            read.pieces = [replace(piece, refusal=UNCLEAR) for piece in read.pieces]
        # What a fit left that was interrupted is known; see `fit_pieces.py`.
        unfinished = read.unfinished if run.fits is None else []
        read.pieces = [*run.with_fits(read.pieces), *unfinished, *run.afterwards]
        self._read[position] = (key, read)
        return read


class HistoryRecorder:
    """Keeps the `History` of one shell; `start` and `stop` register and remove its hooks.

    Args:
        shell: IPython's.
        star_names: the names that `from module import *` binds.
    """

    def __init__(self, shell: Any, star_names: Callable[[str], Iterable[str]] = no_star_names) -> None:
        self.history = History(_runs_so_far(shell))
        self.kept = KeptPass()
        self._star_names = star_names
        self._shell = shell
        self._open: list[Run] = []
        self._folder = FitFolder()

    def remember_weights(self, name: str, file: Path) -> None:
        """The job of the running cell left other weights in a model than its source gives it: keep them for later jobs."""
        self._remember(name, self._folder.keep(".safetensors", partial(shutil.copyfile, file)))

    def remember_value(self, make: Callable[[int], Piece]) -> None:
        """GPUlayer bound a name in the running cell (its number is given): keep the statement that stands for that in later jobs."""
        run = self.current
        if run is not None:
            piece = make(run.cell)
            kept = {path: self._folder.keep(".bin", partial(_write, content)).file for path, content in piece.files.items()}
            run.afterwards.append(replace(piece, files=kept))

    def _remember(self, name: str, weights: KeptFile) -> None:
        if self.current is not None:
            self.current.afterwards.append(load_weights_piece(self.current.cell, 1, name, weights))

    def keep_fit(
        self, model: Any, save: Callable[[Any, Path], None], *, figures: Mapping[str, Any], trainer: Any, loaders: Sequence[Any]
    ) -> None:
        """A fit in this kernel, or for it, has ended; see `SourceProvider.keep_weights`."""
        run = self.current
        if run is None:
            return  # a callback between the cells, which no later job repeats
        run.fits = run.fits or FitLedger(self._folder)
        names = self._shell.user_ns
        run.fits.add(executing_place(names), model, save, figures=figures, trainer=trainer, loaders=loaders, namespace=names)

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
        if self._open and _RUNS_OTHER_CELL.match(self._open[-1].raw):
            self._open.append(self._open[-1])
            return
        manager = self._shell.history_manager
        # IPython versions differ in whether the count has grown by now; its list of inputs has not.
        number = len(manager.input_hist_raw) if manager.enabled else self._shell.execution_count
        run = Run(cell=number, raw=info.raw_cell or "", finished=False, files=files_that_run(info.raw_cell or ""))
        self.history.runs.append(run)
        self._open.append(run)

    def _after(self, result: Any) -> None:
        # The run that holds `%load_ext gpulayer` was read from IPython's history, and nobody saw it begin.
        run = self._open.pop() if self._open else self.current
        inner = run is not None and run in self._open
        if run is None or (run.raw != (result.info.raw_cell or "") and not inner):
            return
        run.nothing_ran |= result.error_before_exec is not None
        if result.error_in_exec is not None:
            run.failed_line = _failed_line(result.error_in_exec.__traceback__, self._shell.user_ns)
        if inner:
            return
        run.cell = result.execution_count or run.cell
        # A file that the cell itself wrote, or that lies where the cell went, is there by now.
        run.files = files_that_run(run.raw) | run.files
        if run.fits is not None:
            run.fits.bind(self._shell.user_ns)
            run.afterwards += [load_weights_piece(run.cell, 1, name, weights) for name, weights in run.fits.changed_since()]
        run.finished = True

    def pieces(self, *, before: Run | None = None) -> tuple[list[Piece], dict[str, str]]:
        """The history's statements; see `History.pieces`."""
        return self.history.pieces(self._transform, before=before)

    @property
    def _transform(self) -> Transform:
        # Static transforms only: IPython's dynamic ones depend on what names are bound now, not when the cell ran.
        found: Transform = self._shell.input_transformer_manager.transform_cell
        return found

    def read(self) -> Iterator[None]:
        """Read what has run, in small steps, and keep the forward pass over it: for a long session the whole takes a second."""
        yield from self.history.read(self._transform)
        pieces, _ = self.pieces()
        for end in (*range(len(self.kept) + _PIECES_AT_ONCE, len(pieces), _PIECES_AT_ONCE), len(pieces)):
            self.kept.take(pieces[:end], self._star_names)
            yield


def _write(content: bytes | Path, file: Path) -> None:
    file.write_bytes(content if isinstance(content, bytes) else content.read_bytes())


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
        run = Run(cell=cell, raw=raw, files=files_that_run(raw))
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
    return History([Run(cell=number, raw=raw, files=files_that_run(raw)) for number, raw in enumerate(sources, start=1)])
