"""`--send` in a real shell: the exported program, run by hand and without GPUlayer, has the kernel's values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gpulayer_jupyter.export.bundle_maker import Export
from gpulayer_jupyter.export.provider import export_magic_cell, recorder_of
from gpulayer_jupyter.sending import class_namer, fetched_piece, sent_pieces
from IPython.core.interactiveshell import InteractiveShell
from support.notebook import text_of, unpack

from gpulayer.errors import NotExportable

MOST_BYTES = 1_000_000


def _ran(shell: InteractiveShell, *cells: str) -> None:
    for cell in cells:
        shell.run_cell(cell, store_history=True).raise_error()


def _export(shell: InteractiveShell, body: str, *names: str) -> Export:
    pieces = sent_pieces(names, shell.user_ns, cell=shell.execution_count, folder=Path.cwd(), most_bytes=MOST_BYTES)
    return export_magic_cell(shell, body, added=pieces)


def _run(export: Export, folder: Path) -> str:
    """Run it as a person would: `python main.py`, with no GPUlayer there to be imported."""
    unpack(export.bundle, folder)
    code = "import runpy, sys; sys.modules['gpulayer'] = None; runpy.run_path('main.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


CASES = {
    "value_from_outside": ("", "x", "[1, 2]", "print(x)", "[1, 2]\n"),
    "slow_computation": ("def load():\n    raise SystemError\n", "x", "{'a': (1, 2)}", "print(x)", "{'a': (1, 2)}\n"),
    "array": ("import numpy as np", "x", "np.arange(3)", "print(x.sum())", "3\n"),
    "tensors": ("import torch", "x", "torch.nn.Linear(2, 1).state_dict()", "print(type(x).__name__, *x)", "OrderedDict weight bias\n"),
    "table": ("import pandas as pd", "x", "pd.DataFrame({'a': [1, 2]})", "print(x.a.sum())", "3\n"),
    "dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass Config:\n    rate: float\n    def __post_init__(self):\n        self.rate *= 2",
        "x",
        "Config(1.0)",
        "print(x)",
        "Config(rate=2.0)\n",
    ),
    "mixed": ("import numpy as np", "x", "[np.arange(3000.0), (1,)]", "print(x[0].sum(), x[1])", "4498500.0 (1,)\n"),
    "no_name_of_ascii": ("import numpy as np", "größe", "np.ones(2)", "print(größe.sum())", "2.0\n"),
}


@pytest.mark.parametrize("kind", CASES)
def test_values_travel(kind: str, shell: InteractiveShell, tmp_path: Path) -> None:
    before, name, value, body, output = CASES[kind]
    _ran(shell, before, f"{name} = {value}")
    assert _run(_export(shell, body, name), tmp_path / "run") == output


def test_each_value_has_files_of_its_own_whatever_it_is_called(shell: InteractiveShell, tmp_path: Path) -> None:
    names = ("value1", "é", "value3", "VALUE3", "read")
    _ran(shell, "import numpy as np", *(f"{name} = np.array({number})" for number, name in enumerate(names)))
    export = _export(shell, f"print({', '.join(names)})", *names)
    assert _run(export, tmp_path / "run") == "0 1 2 3 4\n"


def test_what_bound_it_before_stays_at_home_and_what_reads_it_later_travels(shell: InteractiveShell, tmp_path: Path) -> None:
    _ran(
        shell,
        "from pathlib import Path",
        "rows = [int(line) for line in Path('data.txt').read_text().split()] if Path('data.txt').exists() else [1, 2]",
        "total = sum(rows)",
        "def twice():\n    return 2 * rows[0]",
    )
    shell.user_ns["rows"].append(39)
    export = _export(shell, "print(rows, twice())", "rows")
    program = text_of(export)
    assert "data.txt" not in program
    assert "total" not in program
    assert "\nrows = [1, 2, 39]\n" in program
    assert _run(export, tmp_path / "run") == "[1, 2, 39] 2\n"


def test_names_of_one_object_stay_names_of_one_object(shell: InteractiveShell, tmp_path: Path) -> None:
    _ran(shell, "first = [1]\nsecond = first\nthird = first\nnumber = 1", "def add():\n    second.append(2)")
    export = _export(shell, "add()\nprint(first, third, number)", "first", "third", "number")
    assert "\nthird = first\nnumber = 1\nsecond = first\n" in text_of(export)
    assert _run(export, tmp_path / "run") == "[1, 2] [1, 2] 1\n"
    # A name that nobody reads stays at home.
    assert "second" not in text_of(_export(shell, "print(first)", "first"))


def test_the_same_values_make_the_same_bundle(shell: InteractiveShell) -> None:
    _ran(shell, "import numpy as np, torch", "a = np.arange(3000.0)\nb = {'x', 'y', 'z'}\nc = torch.ones(3)")
    digests = {_export(shell, "print(a, b, c)", "a", "b", "c").bundle.digest() for _ in range(3)}
    assert len(digests) == 1
    shell.user_ns["a"][0] = 7
    assert _export(shell, "print(a, b, c)", "a", "b", "c").bundle.digest() not in digests


def test_a_value_nobody_seems_to_read_travels_as_asked(shell: InteractiveShell, tmp_path: Path) -> None:
    shell.user_ns["hidden"] = 3
    assert _run(_export(shell, "print(globals()['hidden'])", "hidden"), tmp_path / "run") == "3\n"


def test_files_of_the_notebooks_own_are_not_in_the_way(shell: InteractiveShell, tmp_path: Path) -> None:
    _ran(shell, "import numpy as np", "x = np.ones(2)\nX = np.zeros(2)")
    Path("sent").mkdir()
    export = _export(shell, "print(x.sum(), X.sum())", "x", "X")
    assert {name for name in export.bundle.files if "/" in name} == {"gpulayer_sent/x.npy", "gpulayer_sent/value-1.npy"}
    assert _run(export, tmp_path / "run") == "2.0 0.0\n"
    assert [path.name for path in Path.cwd().iterdir()] == ["sent"]


@pytest.mark.parametrize(
    ("value", "message", "fix"),
    [
        ("lambda: 1", "'x' can't be sent: it is a function, which is no plain data.", "take it out of --send"),
        ("{'a': [object()]}", "'x' can't be sent: x['a'][0] is a object", "what it is made of"),
        ("b'x' * 2000000", "'x' can't be sent: it comes to 2.0 MB, over the limit of 1 MB for one value.", "--input NAME=PATH"),
    ],
)
def test_refusals_name_the_value_and_the_way_out(value: str, message: str, fix: str, shell: InteractiveShell) -> None:
    _ran(shell, f"x = {value}")
    with pytest.raises(NotExportable) as refused:
        _export(shell, "print(x)", "x")
    assert refused.value.message.startswith(message)
    assert fix in (refused.value.fix or "")


def test_a_name_that_is_not_bound(shell: InteractiveShell) -> None:
    with pytest.raises(NotExportable, match=r"'x' \(--send\) is not bound in this kernel"):
        _export(shell, "print(x)", "x")


def test_classes_are_named_as_the_cells_name_them(shell: InteractiveShell) -> None:
    Path("shapes.py").write_text(
        "import dataclasses\n@dataclasses.dataclass\nclass Box:\n    side: int\n"
        "@dataclasses.dataclass\nclass Other:\n    @dataclasses.dataclass\n    class Inner:\n        n: int\n"
    )
    _ran(shell, "import shapes\nfrom shapes import Box as Cube\nimport decimal")
    name_of = class_namer(shell.user_ns)
    shapes = shell.user_ns["shapes"]
    assert [name_of(kind) for kind in (shapes.Box, shapes.Other, shapes.Other.Inner)] == ["Cube", "shapes.Other", "shapes.Other.Inner"]
    assert name_of(type("Box", (), {})) is None


def test_a_class_behind_a_module_is_found_in_the_program(shell: InteractiveShell, tmp_path: Path) -> None:
    Path("boxes.py").write_text("import dataclasses\n@dataclasses.dataclass\nclass Box:\n    side: object\n")
    _ran(shell, "import boxes", "import numpy as np", "x = [boxes.Box(np.arange(3000)), (1,)]", "y = boxes.Box(2)")
    assert _run(_export(shell, "print(x[0].side.sum(), y)", "x", "y"), tmp_path / "run") == "4498500 Box(side=2)\n"


def test_a_value_that_came_back_goes_on_to_later_jobs(shell: InteractiveShell, tmp_path: Path) -> None:
    _ran(shell, "import numpy as np", "x = 'the old one'")
    shell.user_ns.update(x=np_array(3000), f=print)
    recorder = recorder_of(shell)

    def bind(name: str) -> None:
        recorder.remember_value(lambda cell: fetched_piece(name, shell.user_ns, cell=cell, most_bytes=MOST_BYTES))

    shell.user_ns["bind"] = bind
    _ran(shell, "bind('x')\nbind('f')", "x[0] = 5", "del bind")
    export = export_magic_cell(shell, "print(x[0], x[1])")
    assert "the old one" not in text_of(export)
    assert _run(export, tmp_path / "run") == "5.0 1.0\n"
    with pytest.raises(NotExportable, match="'f' came back from a job, and it is a builtin_function_or_method"):
        export_magic_cell(shell, "f(1)")


def np_array(count: int) -> object:
    import numpy as np

    return np.arange(float(count))


def test_a_value_that_came_back_and_needs_the_reader_asks_nobody_and_runs(shell: InteractiveShell, tmp_path: Path) -> None:
    shell.user_ns["x"] = [np_array(3000), (1, 2)]
    shell.user_ns["bind"] = lambda: recorder_of(shell).remember_value(
        lambda cell: fetched_piece("x", shell.user_ns, cell=cell, most_bytes=MOST_BYTES)
    )
    _ran(shell, "bind()", "y = len(x)")
    export = export_magic_cell(shell, "print(x[1], y)")
    assert (export.side_effects, export.untimed) == ((), ())
    assert _run(export, tmp_path / "run") == "(1, 2) 2\n"
