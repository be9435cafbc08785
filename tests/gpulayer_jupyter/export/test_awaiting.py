"""Top-level `await` in programs: one event loop, the names global, the text and its lines as they were."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.notebook import export_after, run_program, text_of

ASK = "import asyncio\nasync def ask(a):\n    await asyncio.sleep(0)\n    return a + 1"

CASES = {
    "assignment": ([ASK, "x = await ask(1)"], "2"),
    "annotated": ([ASK, "x: int = await ask(1)"], "2"),
    "several names": ([ASK, "x, *y = await asyncio.gather(ask(1), ask(2))"], "2"),
    "task made by an earlier cell": ([ASK, "task = asyncio.create_task(ask(4))", "x = await task"], "5"),
    "lock shared by two cells": ([ASK, "lock = asyncio.Lock()", "async with lock:\n    x = 1", "async with lock:\n    x += 1"], "2"),
    "comprehension": ([ASK, "x = [await ask(k) for k in range(2)]"], "[1, 2]"),
    "text of several lines": ([ASK, 'x = """\n  a\n{}""".format(await ask(1))'], "'\\n  a\\n2'"),
    "changed in place": ([ASK, "x = []", "for k in range(2):\n    # as in a notebook\n    x.append(await ask(k))"], "[1, 2]"),
    "deleted": ([ASK, "x = 1\ny = 2", "if await ask(1):\n    del y\n    x = 3"], "3"),
}


@pytest.mark.parametrize("case", CASES)
def test_earlier_cells_that_await_bind_their_names(case: str, tmp_path: Path) -> None:
    cells, value = CASES[case]
    done = run_program(export_after(cells, "print(repr(x))"), tmp_path)
    assert done.stderr == ""
    assert done.stdout == f"{value}\n"


def test_the_jobs_own_cell_awaits(tmp_path: Path) -> None:
    body = "y = await ask(x)\nasync with asyncio.timeout(9):\n    y += 1\nprint(y)\nawait ask(y)"
    done = run_program(export_after([ASK, "x = await ask(1)"], body), tmp_path)
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "4"


def test_a_program_without_await_has_no_loop() -> None:
    assert "__gpulayer_loop__" not in text_of(export_after([ASK, "x = 1"], "print(x, ask)"))


def test_lines_lead_back_to_the_cell() -> None:
    program = export_after([ASK, "y = 1\nx = await ask(y)"], "print(x)").program
    [piece] = [piece for piece in program.lines if (piece.cell, piece.line) == (2, 2)]
    assert program.files["main.py"].splitlines()[piece.first - 1] == "    x = await ask(y)"
