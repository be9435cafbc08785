"""What a real shell ran, before and after the extension was loaded."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from gpulayer_jupyter.export.history import HistoryRecorder
from gpulayer_jupyter.export.provider import NotebookProvider, recorder_of
from support.notebook import export_after, new_shell, transform

from gpulayer.bundle.source_provider import Source
from gpulayer.errors import NotExportable


def _ran(recorder: HistoryRecorder) -> list[str]:
    return [ast.unparse(piece.node) for piece in recorder.history.pieces(transform)[0] if not piece.unfinished]


def test_cells_from_before_loading_are_included() -> None:
    shell = new_shell()
    for cell in ("x = 1", "x = 2\n1 / 0\nx = 3", "y = (", "x = 4"):
        shell.run_cell(cell, store_history=True)
    assert _ran(HistoryRecorder(shell)) == ["x = 1", "x = 2", "x = 4"]


def test_cell_from_before_loading_that_failed_nobody_knows_where_is_named() -> None:
    shell = new_shell()
    shell.run_cell("x = 1\n1 / 0", store_history=True)
    shell.history_manager.exceptions[1]["traceback"] = ["gone"]
    history = HistoryRecorder(shell).history
    with pytest.raises(NotExportable, match=r"Cell 1, line 1: its cell raised before"):
        export_after(history, "print(x)")
    export_after(history, "print(1)")


def test_each_run_of_a_cell_counts_up_to_what_failed() -> None:
    shell = new_shell()
    recorder = HistoryRecorder(shell)
    recorder.start()
    for cell in ("x = 0", "x += 1", "x += 1", "def f():\n    raise ValueError\nx = 9\nf()\nx = 10", "y = ("):
        shell.run_cell(cell, store_history=True)
    assert _ran(recorder) == ["x = 0", "x += 1", "x += 1", "def f():\n    raise ValueError", "x = 9"]
    assert [run.cell for run in recorder.history.runs] == [1, 2, 3, 4, 5]
    recorder.stop()
    shell.run_cell("z = 1", store_history=True)
    assert "z = 1" not in _ran(recorder)


def test_silent_runs_are_no_cells() -> None:
    shell = new_shell()
    recorder = HistoryRecorder(shell)
    recorder.start()
    shell.run_cell("x = 1", silent=True)
    shell.run_cell("y = 1", store_history=False)
    assert _ran(recorder) == ["y = 1"]


def test_recorder_is_one_for_a_shell() -> None:
    shell = new_shell()
    assert recorder_of(shell) is recorder_of(shell)


def test_weights_that_a_job_left_travel_with_what_reads_the_model(tmp_path: Path) -> None:
    shell = new_shell()
    recorder = recorder_of(shell)
    file = tmp_path / "fit0.safetensors"
    file.write_bytes(b"weights")

    def fit() -> None:
        recorder.remember_weights("model", file)

    shell.user_ns["fit"] = fit
    shell.run_cell("model = [1]\nother = 2", store_history=True)
    shell.run_cell("fit()", store_history=True)
    pieces, _ = recorder.history.pieces(transform)
    [path] = pieces[-1].files
    assert pieces[-1].files[path].read_bytes() == b"weights"
    assert "model.load_state_dict(" in pieces[-1].source


@pytest.mark.parametrize(
    ("cell", "main", "rest"),
    [
        ("y = x + [1]\nprint('only here')\nsend(y)\nprint('only here')", "y = x + [1]", "send(y)\n"),
        ("def go():\n    send()\n\ngo()\nafter = 1", "def go():", "go()\n"),
    ],
)
def test_statement_that_asks_travels_with_what_it_needs(cell: str, main: str, rest: str) -> None:
    shell = new_shell()
    recorder_of(shell)
    collected: list[Source] = []
    provider = NotebookProvider(shell)
    shell.run_cell("x = [1]\ndef send(*values):\n    pass", store_history=True)
    shell.user_ns["send"] = lambda *values: collected.append(provider.collect())
    assert shell.run_cell(cell, store_history=True).success
    [source] = collected
    files = source.bundle.files
    assert main.encode() in files["main.py"]
    assert b"only here" not in files["main.py"]
    assert files["cell.py"] == rest.encode()
    assert (source.script, source.args, source.title) == ("main.py", (), "cell-2")
