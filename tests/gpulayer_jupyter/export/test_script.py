"""The exported program: what stands at module level, and that tools which look for source or import it again work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.notebook import export_after, run_program, text_of


def _split(body: str, cells: list[str] | None = None) -> tuple[str, str]:
    export = export_after(cells or [], body)
    main = text_of(export).split("# cell", 1)[-1].split("\nif __name__")[0]
    return main, text_of(export, "cell.py")


def test_definitions_stand_at_module_level_with_what_they_read() -> None:
    main, cell = _split(
        "import math\nLR = 0.1\nprint('start')\n"
        "class Net:\n    lr = LR\n    def run(self):\n        return SIZE * math.pi\nSIZE = 2\nNet().run()\n"
    )
    for text in ("import math", "LR = 0.1", "class Net:", "SIZE = 2"):
        assert text in main
    assert cell == "print('start')\nNet().run()\n"


@pytest.mark.parametrize(
    ("body", "stays"),
    [
        ("result = Trainer().fit(model)\ndef show():\n    return result", "result = Trainer().fit(model)\n"),
        (
            "trainer = Trainer()\nresult = trainer.fit(model)\ndef show():\n    return result",
            "trainer = Trainer()\nresult = trainer.fit(model)\n",
        ),
        ("for v in [1, 2]:\n    last = v\ndef show():\n    return last", "for v in [1, 2]:\n    last = v\n"),
        # Moving these would change what the statement before them sees.
        ("x = 1\nprint(x)\nx = 2\ndef f():\n    return x", "print(x)\nx = 2\n"),
        ("f()\ndef f():\n    return 2", "f()\ndef f():\n    return 2\n"),
    ],
)
def test_work_and_what_would_be_seen_out_of_order_stay_in_the_cell(body: str, stays: str) -> None:
    cells = ["class Trainer:\n    def fit(self, model):\n        return 1\nmodel = [0]\nx = 0\ndef f():\n    return 1"]
    assert _split(body, cells)[1] == stays


def test_environment_above_an_import_moves_with_it() -> None:
    main, cell = _split("import os\nos.environ['A'] = '1'\nimport json\nos.environ['B'] = '2'\n")
    assert main.index("environ['A']") < main.index("import json")
    assert cell == "os.environ['B'] = '2'\n"


def test_order_of_prints_and_values_is_the_cells(tmp_path: Path) -> None:
    body = "x = 1\nprint(x)\ndef f():\n    return x\nx = 5\nprint(f())\ny = [x]\ny.append(2)\ndef g():\n    return y\nprint(g())"
    assert run_program(export_after([], body), tmp_path).stdout.splitlines() == ["1", "5", "[5, 2]"]


def test_source_can_be_asked_for(tmp_path: Path) -> None:
    export = export_after(
        ["def early(a):\n    return a + 1\n"],
        "import inspect\nclass Late:\n    def m(self): pass\nprint(inspect.getsource(early) + inspect.getsource(Late))",
    )
    done = run_program(export, tmp_path)
    assert done.stdout == "def early(a):\n    return a + 1\nclass Late:\n    def m(self): pass\n\n", done.stderr


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_that_import_the_program_again_find_the_cells_classes(method: str, tmp_path: Path) -> None:
    body = f"""import multiprocessing
SCALE = 3
class Squares:
    def __getitem__(self, i):
        return OFFSET + SCALE * i * i
print("once")
with multiprocessing.get_context({method!r}).Pool(1) as pool:
    print(pool.map(Squares().__getitem__, [1, 2]))
"""
    done = run_program(export_after(["OFFSET = 1"], body), tmp_path)
    assert done.stdout.splitlines() == ["once", "[4, 13]"], done.stderr


@pytest.mark.parametrize("installed", [True, False])
def test_display_is_text_where_the_program_runs_by_hand(tmp_path: Path, installed: bool) -> None:
    done = run_program(export_after([], "display([1], 'x')"), tmp_path)
    if not installed:
        program = "import runpy, sys; sys.modules['gpulayer'] = None; runpy.run_path('main.py', run_name='__main__')"
        done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[1]\n'x'\n", "")


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("x = 6\nx * 7", "42\n"),
        ("x = 6\nx * 7;", ""),
        ("x = 6\nx * 7  # text; text", "42\n"),
        ("x = 6; x * 7", "42\n"),
        ("x = 6; x * 7;", ""),
        ("x = 6; x * 7 ;  # text", ""),
        ("(6 *\n 7)", "42\n"),
        ("None", ""),
        ("print('printed')", "printed\n"),
        ("'text'\n\n", "'text'\n"),
        ("'''a\nb'''", "'a\\nb'\n"),
        ("6 * 7\ndef f():\n    pass", ""),
        ("x = 42", ""),
        ("if True:\n    42", ""),
        ("from __future__ import annotations\ndef f(a: Nowhere): pass\nf.__annotations__", "{'a': 'Nowhere'}\n"),
    ],
)
def test_the_value_of_the_last_expression_is_shown_as_notebooks_do(body: str, shown: str, tmp_path: Path) -> None:
    done = run_program(export_after([], body), tmp_path)
    assert (done.stdout, done.stderr) == (shown, "")


def test_an_error_in_the_last_expression_has_its_line(tmp_path: Path) -> None:
    export = export_after([], "x = 0\n\n# why\n(x +\n 1 / x)")
    done = run_program(export, tmp_path)
    line = text_of(export, "cell.py").splitlines().index(" 1 / x)") + 1
    assert f'cell.py", line {line}' in done.stderr


def test_future_features_hold_for_the_cell(tmp_path: Path) -> None:
    export = export_after(
        ["from __future__ import annotations"], "def f(a: Nowhere): pass\nif True:\n    def g(a: Nowhere): pass\nprint('ran')"
    )
    assert run_program(export, tmp_path).stdout == "ran\n"


def test_line_table_leads_back_to_the_cells() -> None:
    export = export_after(["x = 1\n\ny = 2"], "# note\ndef f():\n    pass\nprint(x, y)")
    program = export.program
    for piece in program.lines:
        lines = program.files[piece.file].splitlines()[piece.first - 1 : piece.first - 1 + piece.count]
        assert lines
        assert program.cells[piece.cell - 1] in (1, 2)
    places = {(piece.file, program.cells[piece.cell - 1], piece.line) for piece in program.lines}
    assert places == {("main.py", 1, 1), ("main.py", 1, 3), ("main.py", 2, 2), ("cell.py", 2, 5)}
