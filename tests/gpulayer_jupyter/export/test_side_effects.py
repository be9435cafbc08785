"""Which kept statements of earlier cells have side effects, as an export tells them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from gpulayer_jupyter.export.accepting import ways_out
from gpulayer_jupyter.export.bundle_maker import Export, Surroundings, export_cell
from gpulayer_jupyter.export.choices import Choices, read_selectors
from gpulayer_jupyter.export.history import runs_of
from gpulayer_jupyter.export.pieces import Piece, read_cell
from gpulayer_jupyter.export.side_effects import told_seconds
from support.notebook import export_after, transform


def _export(cells: list[str], body: str, seconds: dict[int, float], choices: Choices | None = None) -> Export:
    pieces, _ = runs_of(cells).pieces(transform)
    cell = read_cell(body, cell=len(cells) + 1, transform=transform, first_line=2).pieces
    seconds_of = {count: seconds.get(count, 0.0) for count in range(1, len(cells) + 1)}
    surroundings = Surroundings(folder=Path("/nonexistent"), seconds_of=lambda piece: seconds_of[piece.cell])
    return export_cell(pieces, cell, surroundings, choices=choices or Choices())


def test_only_what_travels_counts() -> None:
    cells = ["open('log.txt', 'w').close()", "x = open('rows.csv', 'w').name", "y = 1"]
    assert export_after(cells, "print(y)").side_effects == ()
    assert [effect.place for effect in export_after(cells, "print(x)").side_effects] == ["2:1"]


def test_the_jobs_own_cell_does_not_count() -> None:
    assert export_after([], "open('x', 'w')").side_effects == ()


def test_each_is_told_with_cell_line_and_reasons() -> None:
    cells = ["import os", "# above\ndef keep(n):\n    os.remove('x')\n    return n\n\nx = [\n    keep(1),\n]"]
    effect = export_after(cells, "print(x)").side_effects[0]
    assert effect.told() == "cell 2, line 7: writes files (os.remove in keep)"
    assert effect.leaves == ("x",)
    assert not effect.accepted


def test_values_that_could_be_sent_instead_are_those_that_the_cell_reads() -> None:
    cells = ["def keep(a):\n    open('x', 'w')\n    return a", "data, rest, _ = keep([1, 2, 3])", "data.append(keep(4))"]
    effects = export_after(cells, "print(data)").side_effects
    assert [effect.leaves for effect in effects] == [("data",), ("data",)]


@pytest.mark.parametrize(
    ("cells", "body", "leaves"),
    [
        # What is made of it travels as well as it does itself, and the file that its path names does not.
        (["path = keep('rows.csv')", "rows = list(path)", "total = len(rows)"], "print(total)", ("total",)),
        (["path = keep('rows.csv')", "def rows():\n    return list(path)"], "print(rows())", ("path",)),
        (["path = keep('rows.csv')", "class Rows:\n    path = path"], "print(Rows.path)", ("path",)),
        # Of a handle nothing is left.
        (["with open('log', 'a') as log:\n    log.write('x')", "x = open('log').name"], "print(x)", ()),
    ],
)
def test_what_is_made_of_it_can_be_sent_where_the_cell_reads_that(cells: list[str], body: str, leaves: tuple[str, ...]) -> None:
    export = export_after(["def keep(a):\n    open('x', 'w')\n    return a", *cells], body)
    assert export.side_effects[0].leaves == leaves
    assert ("--send" in ways_out(export.side_effects[:1])) == bool(leaves)


@pytest.mark.parametrize(
    ("statement", "counts"),
    [
        ("x = f()", True),
        ("x = [n * n for n in range(3)]", True),
        ("x = 0\nfor n in range(3):\n    x += n", True),
        ("x = 1", False),
        ("import json as x", False),
        ("def x():\n    return f()", False),
        ("class x:\n    y = f()", False),
    ],
)
def test_what_took_long_counts_unless_it_imports_or_defines(statement: str, counts: bool) -> None:
    effects = _export(["def f():\n    return 1", statement], "print(x)", {2: 42.0}).side_effects
    assert bool(effects) == counts
    assert all(effect.reasons == ("took 42 s in the kernel",) for effect in effects)
    assert _export(["def f():\n    return 1", statement], "print(x)", {2: 9.0}).side_effects == ()


def test_cells_of_which_nobody_knows_how_long_they_took_are_named() -> None:
    export = export_after(["import json", "x = 1", "y = json.loads('1')"], "print(x, y)")
    assert (export.untimed, export.side_effects) == ((3,), ())


@pytest.mark.parametrize(
    ("rerun", "accepted"), [("x", [True, False]), ("2:1", [True, False]), ("2,3", [True, True]), ("all", [True, True])]
)
def test_accepted(rerun: str, accepted: list[bool]) -> None:
    cells = ["def f(name):\n    open(name, 'w')", "x = f('a')", "y = f('b')"]
    effects = _export(cells, "print(x, y)", {}, Choices(rerun=read_selectors(rerun))).side_effects
    assert [effect.accepted for effect in effects] == accepted


def test_accepted_before_by_its_text() -> None:
    cells = ["x = open('a', 'w').name", "y = open('b', 'w').name"]
    effects = _export(cells, "print(x, y)", {}, Choices(accepted={"x = open('a', 'w').name"})).side_effects
    assert [effect.accepted for effect in effects] == [True, False]


def test_a_file_that_is_run_counts_at_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prepare.py").write_text("def keep():\n    open('log.txt', 'w')\nkeep()\nif __name__ == '__main__':\n    x = 1\n")
    effects = export_after(["# first\n%run prepare.py"], "print(x)").side_effects
    assert [effect.told() for effect in effects] == ["cell 1, line 2: writes files (open in keep)"]


def test_a_file_that_was_written_and_is_read_counts() -> None:
    cells = ["open('rows.csv', 'w').write('1')", "rows = open('rows.csv').read()"]
    assert [effect.place for effect in export_after(cells, "print(rows)").side_effects] == ["1:1"]


def test_a_file_that_is_sent_needs_nobody_who_writes_it() -> None:
    cells = ["open('data/rows.csv', 'w').write('1')", "open('other.csv', 'w').write('1')"]
    pieces, _ = runs_of(cells).pieces(transform)
    cell = read_cell("print(open('data/rows.csv').read(), open('other.csv').read())", cell=3, transform=transform).pieces
    effects = export_cell(pieces, cell, Surroundings(folder=Path("/nonexistent")), given=["data/rows.csv"]).side_effects
    assert [effect.place for effect in effects] == ["2:1"]
    assert effects[0].leaves == ()
    assert "Send the file that is needed with --input NAME=PATH" in ways_out(effects)


def test_what_stands_for_a_sent_value_does_not_count() -> None:
    node = read_cell("x = open('sent/x.json').read()", cell=2, transform=transform).pieces
    cell = read_cell("print(x)", cell=2, transform=transform).pieces
    history: list[Piece] = read_cell("x = open('log', 'w')", cell=1, transform=transform).pieces
    export = export_cell(history, cell, Surroundings(folder=Path("/nonexistent")), added=node)
    assert (export.side_effects, export.untimed) == ((), ())


def test_what_gpulayer_put_into_the_history_has_no_time() -> None:
    node = ast.parse("x = len('fetched')").body[0]
    cell = read_cell("print(x)", cell=2, transform=transform).pieces
    export = export_cell([Piece(1, 1, "x = len('fetched')\n", node, 1)], cell, Surroundings(folder=Path("/nonexistent")))
    assert export.untimed == ()


def test_a_file_that_was_run_and_took_long_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prepare.py").write_text("x = sum(range(3))\n")
    assert [effect.place for effect in _export(["%run prepare.py"], "print(x)", {1: 42.0}).side_effects] == ["1:1"]


@pytest.mark.parametrize(("seconds", "told"), [(0.42, "0.4 s"), (42.4, "42 s"), (119.0, "119 s"), (480.0, "8 min")])
def test_told_seconds(seconds: float, told: str) -> None:
    assert told_seconds(seconds) == told
