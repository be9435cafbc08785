"""The notebook as a place that code is launched from: what `gpulayer.bundle.source_provider` asks for inside IPython.

Joins the shell (history, namespace, module path) to the pure export. Runs in the kernel.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from gpulayer.bundle.executing import Position, executing_place
from gpulayer.bundle.source_provider import Source
from gpulayer.errors import NotExportable
from gpulayer_jupyter.export.accepting import accepted_before, also_ran, check_accepted
from gpulayer_jupyter.export.bundle_maker import Export, Surroundings, export_cell, module_search
from gpulayer_jupyter.export.choices import NO_CHOICES, Choices, remembered_by
from gpulayer_jupyter.export.history import HistoryRecorder, Run
from gpulayer_jupyter.export.installed_packages import entries_by_hand
from gpulayer_jupyter.export.pieces import Piece, read_cell
from gpulayer_jupyter.export.reading_ahead import ReadingAhead
from gpulayer_jupyter.export.run_files import files_that_run
from gpulayer_jupyter.export.statement_times import StatementTimes
from gpulayer_jupyter.refusals import shown

_recorders: WeakKeyDictionary[Any, HistoryRecorder] = WeakKeyDictionary()
_times: WeakKeyDictionary[Any, StatementTimes] = WeakKeyDictionary()
_readings: WeakKeyDictionary[Any, ReadingAhead] = WeakKeyDictionary()


def recorder_of(shell: Any) -> HistoryRecorder:
    """The shell's recorder, started at the first call; loading the extension again keeps it."""
    recorder = _recorders.get(shell)
    if recorder is None:
        recorder = _recorders[shell] = HistoryRecorder(shell, _star_names)
        recorder.start()
        _times[shell] = StatementTimes(shell, recorder)
        _times[shell].start()
        _readings[shell] = ReadingAhead(shell, recorder, lambda: module_search(_surroundings(shell, recorder)))
        _readings[shell].start()
    return recorder


def reading_of(shell: Any) -> ReadingAhead:
    """What reads ahead in this shell, which has a recorder."""
    return _readings[shell]


def stop_recording(shell: Any) -> None:
    """End the shell's recorder, where there is one."""
    recorder = _recorders.pop(shell, None)
    if recorder is not None:
        recorder.stop()
        _times.pop(shell).stop()
        _readings.pop(shell).stop()


def export_magic_cell(
    shell: Any, body: str, *, choices: Choices = NO_CHOICES, added: Sequence[Piece] = (), given: Sequence[str] = ()
) -> Export:
    """The program for a `%%gpulayer` cell with this body, which is the cell that runs in this moment.

    Args:
        shell: IPython's.
        body: the cell's text below the magic.
        choices: what a person says about the statements of earlier cells.
        added: statements that stand behind those of earlier cells.
        given: paths of files and folders that are sent beside the program.

    Raises:
        InvalidSpec: a choice that no statement answers to.
        NotExportable: naming what can't travel, its cell and line.
        SyntaxError: as Python shows it, with the cell's own line.
    """
    run = recorder_of(shell).current
    raw = run.raw if run is not None else ""
    above = raw.find(body) if body.strip() else -1
    first_line = raw.count("\n", 0, above) + 1 if above >= 0 else 2
    return _export(shell, run, body, first_line=first_line, choices=choices, added=added, given=given)


class NotebookProvider:
    """The statement of a cell that asks, and what it needs of the cell above it and of earlier cells."""

    def __init__(self, shell: Any = None) -> None:
        if shell is None:
            from IPython import get_ipython

            shell = get_ipython()
        self._shell = shell
        self._export: Export | None = None

    @shown
    def collect(self) -> Source:
        """The source as it stands; see `SourceProvider`."""
        run = recorder_of(self._shell).current
        if run is None:
            raise NotExportable("No cell is running whose source could travel.", fix="Call it from a cell.")
        if run.fits is not None:
            run.fits.bind(self._shell.user_ns)
        export = _export(self._shell, run, run.raw, first_line=1, through=executing_place(self._shell.user_ns).position)
        check_accepted(export, self._shell, in_magic=False)
        self._export = export
        return Source(bundle=export.bundle, script=export.script, args=(), title=f"cell-{run.cell}", cells=export.program.cells)

    @shown
    def follow(self, job: Any) -> None:
        """Show the job under the cell until it ends; see `SourceProvider`."""
        from gpulayer_jupyter.results import follow_to_end

        export = self._export
        follow_to_end(job, self._shell, program=export.program if export else None, said=also_ran(export) if export else ())

    def keep_weights(
        self, model: Any, save: Callable[[Any, Path], None], *, figures: Mapping[str, Any], trainer: Any, loaders: Sequence[Any]
    ) -> None:
        """Remember what a fit left, for later exports; see `SourceProvider`."""
        recorder_of(self._shell).keep_fit(model, save, figures=figures, trainer=trainer, loaders=loaders)


def _export(
    shell: Any,
    run: Run | None,
    source: str,
    *,
    first_line: int,
    through: Position = (),
    choices: Choices = NO_CHOICES,
    added: Sequence[Piece] = (),
    given: Sequence[str] = (),
) -> Export:
    recorder = recorder_of(shell)
    number = run.cell if run is not None else shell.execution_count
    cell = read_cell(source, cell=number, transform=shell.transform_cell, first_line=first_line, files=files_that_run(source)).pieces
    ran_before, remote = recorder.pieces(before=run)
    pieces = ran_before
    if through:
        # What stands above the statement that asks has run, as earlier cells have.
        ran = [piece for piece in cell if piece.begins_by(through)]
        pieces, cell = [*pieces, *(run.with_fits(ran[:-1]) if run is not None else ran[:-1])], ran[-1:]
    surroundings = _surroundings(shell, recorder)
    choices = replace(choices, accepted=frozenset(remembered_by(shell).accepted))
    try:
        recorder.kept.take(ran_before, _star_names, given)
        return accepted_before(export_cell(pieces, cell, surroundings, remote=remote, choices=choices, added=added, given=given), shell)
    except RecursionError:
        deepest = max([*pieces, *cell], key=lambda piece: _depth(piece.node))
        place = deepest.place()
        raise NotExportable(f"{place[:1].upper()}{place[1:]}: the statement is nested too deep to be looked at.", fix="Split it.") from None


def _surroundings(shell: Any, recorder: HistoryRecorder) -> Surroundings:
    return Surroundings(
        bound=frozenset(shell.user_ns),
        folder=Path.cwd(),
        started_in=Path(shell.starting_dir),
        own_folders=entries_by_hand(sys.path),
        module_path=tuple(sys.path),
        loaded=_loaded,
        star_names=_star_names,
        seconds_of=_times[shell].lookup(),
        kept=recorder.kept,
    )


def _depth(node: ast.AST) -> int:
    depth, level = 0, [node]
    while level:
        depth, level = depth + 1, [inner for outer in level for inner in ast.iter_child_nodes(outer)]
    return depth


def _loaded(name: str) -> ModuleSpec | None:
    return getattr(sys.modules.get(name), "__spec__", None)


def _star_names(module: str) -> Iterable[str]:
    loaded = sys.modules.get(module)
    if loaded is None:
        return ()
    public = getattr(loaded, "__all__", None)
    return tuple(public) if public is not None else tuple(name for name in vars(loaded) if not name.startswith("_"))
