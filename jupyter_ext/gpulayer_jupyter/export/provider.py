"""The notebook as a place that code is launched from: what `gpulayer.bundle.source_provider` asks for inside IPython.

Joins the shell (history, namespace, module path) to the pure export. Runs in the kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from gpulayer.bundle.executing import Position, executing_place
from gpulayer.bundle.source_provider import Source
from gpulayer.errors import NotExportable
from gpulayer_jupyter.export.bundle_maker import Export, Surroundings, export_cell
from gpulayer_jupyter.export.history import HistoryRecorder, Run
from gpulayer_jupyter.export.pieces import read_cell
from gpulayer_jupyter.refusals import shown

_recorders: WeakKeyDictionary[Any, HistoryRecorder] = WeakKeyDictionary()


def recorder_of(shell: Any) -> HistoryRecorder:
    """The shell's recorder, started at the first call; loading the extension again keeps it."""
    recorder = _recorders.get(shell)
    if recorder is None:
        recorder = _recorders[shell] = HistoryRecorder(shell)
        recorder.start()
    return recorder


def stop_recording(shell: Any) -> None:
    """End the shell's recorder, where there is one."""
    recorder = _recorders.pop(shell, None)
    if recorder is not None:
        recorder.stop()


def export_magic_cell(shell: Any, body: str) -> Export:
    """The program for a `%%gpulayer` cell with this body, which is the cell that runs in this moment.

    Raises:
        NotExportable: naming what can't travel, its cell and line.
        SyntaxError: as Python shows it, with the cell's own line.
    """
    run = recorder_of(shell).current
    raw = run.raw if run is not None else ""
    above = raw.find(body) if body.strip() else -1
    first_line = raw.count("\n", 0, above) + 1 if above >= 0 else 2
    return _export(shell, run, body, first_line=first_line)


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
        self._export = export
        return Source(bundle=export.bundle, script=export.script, args=(), title=f"cell-{run.cell}", cells=export.program.cells)

    @shown
    def follow(self, job: Any) -> None:
        """Show the job under the cell until it ends; see `SourceProvider`."""
        from gpulayer_jupyter.results import follow_to_end

        follow_to_end(job, self._shell, program=self._export.program if self._export is not None else None)

    def keep_weights(
        self, model: Any, save: Callable[[Any, Path], None], *, figures: Mapping[str, Any], trainer: Any, loaders: Sequence[Any]
    ) -> None:
        """Remember what a fit left, for later exports; see `SourceProvider`."""
        recorder_of(self._shell).keep_fit(model, save, figures=figures, trainer=trainer, loaders=loaders)


def _export(shell: Any, run: Run | None, source: str, *, first_line: int, through: Position = ()) -> Export:
    history = recorder_of(shell).history
    number = run.cell if run is not None else shell.execution_count
    cell = read_cell(source, cell=number, transform=shell.transform_cell, first_line=first_line).pieces
    # Static transforms only: IPython's dynamic ones depend on what names are bound now, not when the cell ran.
    pieces, remote = history.pieces(shell.input_transformer_manager.transform_cell, before=run)
    if through:
        # What stands above the statement that asks has run, as earlier cells have.
        ran = [piece for piece in cell if piece.begins_by(through)]
        pieces, cell = [*pieces, *(run.with_fits(ran[:-1]) if run is not None else ran[:-1])], ran[-1:]
    surroundings = Surroundings(bound=frozenset(shell.user_ns), folder=Path.cwd(), module_path=tuple(sys.path), star_names=_star_names)
    return export_cell(pieces, cell, surroundings, remote=remote)


def _star_names(module: str) -> Iterable[str]:
    loaded = sys.modules.get(module)
    if loaded is None:
        return ()
    public = getattr(loaded, "__all__", None)
    return tuple(public) if public is not None else tuple(name for name in vars(loaded) if not name.startswith("_"))
