"""`--exclude` and `--only`: what a person takes out of a history, and what is refused then."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpulayer_jupyter.export.bundle_maker import Export, Surroundings, export_cell
from gpulayer_jupyter.export.choices import Choices, Selector, read_selectors
from gpulayer_jupyter.export.history import runs_of
from gpulayer_jupyter.export.pieces import read_cell
from support.notebook import run_program, text_of, transform

from gpulayer.errors import InvalidSpec, NotExportable


def _export(cells: list[str], body: str, **options: str) -> Export:
    pieces, _ = runs_of(cells).pieces(transform)
    cell = read_cell(body, cell=len(cells) + 1, transform=transform, first_line=2).pieces
    choices = Choices(**{name: read_selectors(text) for name, text in options.items()})
    return export_cell(pieces, cell, Surroundings(folder=Path("/nonexistent"), bound=("x",)), choices=choices)


def test_selectors_are_read() -> None:
    assert read_selectors("model, 3:2,4,") == (Selector("model", name="model"), Selector("3:2", cell=3, line=2), Selector("4", cell=4))
    assert read_selectors("[3]:2")[0].line == 2
    with pytest.raises(ValueError, match="'a b' is neither a name nor CELL:LINE"):
        read_selectors("a b")
    with pytest.raises(ValueError, match="',' names no statement"):
        read_selectors(",")


@pytest.mark.parametrize("what", ["log", "2:2,2:4", "2:3,2:4"])
def test_excluded_by_name_or_line(what: str, tmp_path: Path) -> None:
    cells = ["rows = []", "x = 1\nlog = open(\n    'log', 'w')\nlog.write('a')\nrows.append(x)"]
    export = _export(cells, "print(x, rows)", exclude=what)
    assert "log" not in text_of(export)
    assert run_program(export, tmp_path).stdout == "1 [1]\n"


def test_a_whole_cell(tmp_path: Path) -> None:
    export = _export(["x = 1", "x = 2\nx += 1", "y = 3"], "print(x, y)", exclude="2")
    assert run_program(export, tmp_path).stdout == "1 3\n"


def test_each_run_of_a_cell_is_a_cell_of_its_own(tmp_path: Path) -> None:
    export = _export(["x = []", "x.append(1)", "x.append(1)"], "print(x)", exclude="3:1")
    assert run_program(export, tmp_path).stdout == "[1]\n"


def test_changes_go_with_the_name_but_not_what_changes_others_too() -> None:
    cells = ["log, total = [], []", "log.append(1)", "total.extend(log)", "def fit(log, total):\n    log.append(1)\n    total.append(2)"]
    cells.append("fit(log, total)")
    with pytest.raises(NotExportable, match=r"'log' \(cell 5, line 1\) is bound by a statement that does not travel"):
        _export([*cells[:1], "total = []", *cells[1:2], cells[3], cells[4]], "print(total)", exclude="log")


def test_what_is_missing_then_is_refused_with_the_statement_and_the_way_out() -> None:
    with pytest.raises(NotExportable) as refused:
        _export(["x = 1", "y = x"], "print(x, y)", exclude="1:1")
    first, second = refused.value.two_lines().splitlines()
    assert first == "'x' (cell 2, line 1) is bound by a statement that does not travel (cell 1, line 1, left out by --exclude)."
    assert "--send x" in second


def test_a_name_that_is_bound_again_is_not_missing(tmp_path: Path) -> None:
    assert run_program(_export(["x = 1", "x = 2"], "print(x)", exclude="1"), tmp_path).stdout == "2\n"


def test_only_these_statements_run(tmp_path: Path) -> None:
    cells = ["import json\nclass Net:\n    pass\ndef load():\n    return json.loads('1')", "x = load()\ny = 2", "x += 1", "x += 10"]
    export = _export(cells, "print(x)", only="2:1,4")
    assert "y = 2" not in text_of(export)
    assert run_program(export, tmp_path).stdout == "11\n"


def test_only_a_name_with_everything_that_changes_it(tmp_path: Path) -> None:
    cells = ["x = []\nz = 5", "def add(to):\n    to.append(1)", "add(x)", "x.append(2)"]
    assert run_program(_export(cells, "print(x)", only="x"), tmp_path).stdout == "[1, 2]\n"
    with pytest.raises(NotExportable, match=r"'z' .*left out by --only"):
        _export(cells, "print(x, z)", only="x")


@pytest.mark.parametrize("option", ["exclude", "only", "rerun"])
@pytest.mark.parametrize("what", ["nothing", "7", "1:9"])
def test_a_choice_that_nothing_answers_to_is_refused(option: str, what: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        _export(["x = 1"], "print(x)", **{option: what})
    assert f"asked for: --{option} {what}; found: cells 1" in refused.value.two_lines()


def test_nothing_chosen_is_the_same_bundle() -> None:
    cells = ["x = 1", "x += 1"]
    assert _export(cells, "print(x)").bundle.digest() == _export(cells, "print(x)", rerun="all").bundle.digest()
