"""No text of cells breaks the exporter: there is a program, or a refusal that names cell and line."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gpulayer_jupyter.export.history import Run
from gpulayer_jupyter.export.provider import export_magic_cell, recorder_of, stop_recording
from gpulayer_jupyter.refusals import shown
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.notebook import new_shell
from support.notebook_files import read_notebook

from gpulayer.errors import NotExportable

CELLS = [
    text for path in sorted((Path(__file__).parent / "notebooks").glob("*.txt")) for text in read_notebook(path).texts("cell", "gpulayer")
]
_CHARACTERS = "\0 \t \f \v \r \r\n \x1a \x1c \ufeff \ud800 \u2028 \x85 \N{NO-BREAK SPACE} \N{ZERO WIDTH SPACE} \\ é 𝔵"
_SIGNS = "' \" # ; : := ( ) [ ] { } @ * ** -> %% % ? ?? ... 0x 1__0 1_000j"
_LINES = """
import
from . import *
from __future__ import nothing
from __future__ import annotations
return 1
yield x
await x
async with x: pass
del x
global x
nonlocal x
lambda:
type X = int
except* E:
f'{x!r:>{y}}'
f'{
%
!ls
x = !ls
x?
%time
%time x = 1
%time %run nothing.py
%time !ls
x = %time (
%%time
%%capture
%%gpulayer
%%writefile x
%gpulayer ps
%run
%run nothing.py
%cd /
%env A=1
get_ipython()
get_ipython().run_line_magic()
get_ipython().run_line_magic('time', '(')
get_ipython().run_cell_magic('time', '', 1)
get_ipython().run_cell_magic('gpulayer')
/print 1
,print a b
# coding: latin-1
# -*- coding: nowhere -*-
"""
ODD = [*_CHARACTERS.split(" "), *_SIGNS.split(" "), "'''", "\\\n", *(f"{line}\n" for line in _LINES.split("\n"))]
DEEP: dict[str, Callable[[int], str]] = {
    "brackets": lambda n: "(" * n + "1" + ")" * n,
    "lists": lambda n: "[" * n + "]" * n,
    "signs": lambda n: "-" * n + "1",
    "nots": lambda n: "not " * n + "x",
    "powers": lambda n: "2" + "**2" * n,
    "sums": lambda n: "x = 1" + " + 1" * n,
    "attributes": lambda n: "x" + ".y" * n,
    "calls": lambda n: "f" + "()" * n,
    "lambdas": lambda n: "lambda: " * n + "1",
    "blocks": lambda n: "".join(" " * depth + "if x:\n" for depth in range(n)) + " " * n + "y = 1",
    "functions": lambda n: "".join(" " * depth + "def f():\n" for depth in range(n)) + " " * n + "global y; y = 1",
    "conditions": lambda n: "1 if x else " * n + "2",
    "elifs": lambda n: "if x: y = 1\n" + "elif x: y = 2\n" * n,
    "comprehensions": lambda n: "[" * n + "x" + " for x in y]" * n,
    "patterns": lambda n: "match x:\n case " + "[" * n + "a" + "]" * n + ": pass",
    "texts": lambda n: "x = " + "'a' " * n,
    "statements": lambda n: "x = 1\n" * n,
    "names": lambda n: "".join(f"x{index} = x{index - 1}\n" if index else "x0 = 0\n" for index in range(n)),
    "long line": lambda n: "x = '" + "a" * n + "'",
    "decorators": lambda n: "@f\n" * n + "def g(): pass",
    # IPython reads the rest of the text again for each of them.
    "magics": lambda n: "%time " * (n // 5 + 1) + "x = 1",
    "nested magics": lambda n: "%%time\n" * (n // 5 + 1) + "x = 1",
}  # fmt: skip


def mutated(seed: int) -> str:
    """A notebook's cell with a few things wrong with it."""
    rng = random.Random(seed)
    text = rng.choice(CELLS)
    for _ in range(rng.randint(1, 4)):
        place, other = rng.randint(0, len(text)), rng.randint(0, len(text))
        lines = text.splitlines(keepends=True)
        match rng.randrange(8):
            case 0:
                text = text[:place] + rng.choice(ODD) + text[place:]
            case 1:
                text = text[: min(place, other)] + text[max(place, other) :]
            case 2 if lines:
                line = rng.randrange(len(lines))
                text = "".join([*lines[:line], rng.choice(ODD), *lines[line:]])
            case 3 if lines:
                rng.shuffle(lines)
                text = "".join(lines)
            case 4:
                text += rng.choice(CELLS)
            case 5:
                text = text.replace("\n", rng.choice(["\r\n", "\r", "\n\n", "\f\n", " \\\n", "\n\t", "\n "]))
            case 6:
                found = re.split(r"(\W+)", text)
                one, two = rng.randrange(len(found)), rng.randrange(len(found))
                found[one], found[two] = found[two], found[one]
                text = "".join(found)
            case _:
                text = rng.choice(["%%time\n", "%%capture x\n", "%%gpulayer\n", "\n\n", "#\n", "\t", "\ufeff"]) + text
    return text


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[list[str], str], None]]:
    """Export a cell after a history, in a shell of its own."""
    shell: Any = new_shell()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("cells"))
        yield partial(_export, shell)
    stop_recording(shell)


def _export(shell: Any, history: list[str], body: str) -> None:
    runs = recorder_of(shell).history.runs
    cells = [*history, f"%%gpulayer\n{body}"]
    runs[:] = [Run(cell=number, raw=raw, finished=number < len(cells)) for number, raw in enumerate(cells, start=1)]
    try:
        made = shown(export_magic_cell)(shell, body)
    except NotExportable as refusal:
        assert re.search(r"[Cc]ell \[?\d+\]?, line \d+", str(refusal)), str(refusal)  # noqa: PT017 - one of two good ends
        return
    program = made.program
    for name, text in program.files.items():
        if name == "cell.py":  # which main.py compiles
            compile(text, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        else:
            compile(text.encode(), name, "exec", dont_inherit=True)
    made.bundle.digest()


# IPython says so of the same cells when it runs them.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`make_tokens_by_line`", "ignore:invalid:SyntaxWarning", "ignore:invalid:DeprecationWarning", "ignore::SyntaxWarning"
)
GENERATED = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
SEEDS = st.integers(0, 2**40)


@GENERATED
@given(seeds=st.lists(SEEDS, min_size=1, max_size=4))
def test_mutated_cells(seeds: list[int], export: Callable[[list[str], str], None]) -> None:
    *history, body = map(mutated, seeds)
    export(history, body)


@GENERATED
@given(cells=st.lists(st.text(st.characters(exclude_categories=())), min_size=1, max_size=3))
@example(cells=["\ud800"])
@example(cells=["x = 1\0", "x"])
@example(cells=["'\ud800'", "x = '\udfff'"])
def test_any_text(cells: list[str], export: Callable[[list[str], str], None]) -> None:
    *history, body = cells
    export(history, body)


@GENERATED
@given(
    parts=st.lists(st.sampled_from([*ODD, "x", "y = x", "\n", " ", "if x:\n    ", "1", "def f():\n\t"]), max_size=25),
    split=st.integers(0, 25),
)
def test_odd_parts(parts: list[str], split: int, export: Callable[[list[str], str], None]) -> None:
    export(["".join(parts[:split])], "".join(parts[split:]))


@pytest.mark.parametrize("count", [3, 99, 1500])
@pytest.mark.parametrize("kind", DEEP)
def test_deep_and_long_cells(kind: str, count: int, export: Callable[[list[str], str], None]) -> None:
    text = DEEP[kind](count)
    export(["x = y = f = 1", text], "x; y; f")
    export(["x = y = f = 1"], text)


@pytest.mark.soak
@settings(parent=GENERATED, max_examples=20_000)
@given(seeds=st.lists(SEEDS, min_size=1, max_size=4))
def test_many_mutated_cells(seeds: list[int], export: Callable[[list[str], str], None]) -> None:
    *history, body = map(mutated, seeds)
    export(history, body)
