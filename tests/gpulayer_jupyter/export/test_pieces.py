"""Cells as pieces: what IPython's syntax means for what travels, and the lines of the notebook's cell."""

from __future__ import annotations

import pytest
from gpulayer_jupyter.export.pieces import read_cell
from support.notebook import export_after, text_of, transform

from gpulayer.errors import NotExportable


def _sources(raw: str) -> list[str]:
    return [piece.source for piece in read_cell(raw, cell=1, transform=transform).pieces]


def test_statements_keep_their_text_and_comments() -> None:
    raw = "x = 1  # one\n\n# above f\n@staticmethod\ndef f():\n\n    return  1\ny = 2; z = [3]\n# below\n"
    assert _sources(raw) == ["x = 1  # one\n", "# above f\n@staticmethod\ndef f():\n\n    return  1\n", "y = 2\n", "z = [3]\n"]


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        ("\n\nx = 1\ny = 2", [3, 4]),
        ("%alias \\\n a b\nx = 1", [1, 3]),
        ("%%time\nx = 1\n\ny = 2", [2, 4]),
        ("    x = 1\n    y = 2", [1, 2]),
        ("x = !ls \\\n -l\ny = 1", [1, 3]),
    ],
)
def test_lines_are_the_cells_own(raw: str, lines: list[int]) -> None:
    assert [piece.line for piece in read_cell(raw, cell=1, transform=transform).pieces] == lines


def test_body_lines_count_from_the_cell() -> None:
    [piece] = read_cell("x = 1", cell=7, transform=transform, first_line=2).pieces
    assert piece.place() == "cell 7, line 2"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("x = 1\n!nvidia-smi", "Cell 2, line 3: `!nvidia-smi` is a shell command"),
        ("x = !ls", "Cell 2, line 2: `!ls` is a shell command"),
        ("print?", "Cell 2, line 2: `print?` asks IPython for help"),
        ("%run other.py", "Cell 2, line 2: `%run other.py` names a file that was not there"),
        ("%run -p other.py", "Cell 2, line 2: `%run -p other.py` does more than running a Python file"),
        ("if True:\n    !ls", "Cell 2, line 2: `!ls` is a shell command"),
        ("%cd -", "Cell 2, line 2: `%cd` is an IPython magic"),
        ("%%bash\nls", "Cell 2, line 2: `%%bash` is an IPython cell magic"),
        ("get_ipython().history_manager", "Cell 2, line 2: it speaks to IPython"),
        ("async with thing() as x:\n    from math import *", "Cell 2, line 2: a statement with both `await` and `import *`"),
    ],
)
def test_what_is_not_python_is_refused_in_the_jobs_own_cell(body: str, says: str) -> None:
    with pytest.raises(NotExportable) as refused:
        export_after(["pass"], body)
    assert refused.value.message.startswith(says)
    assert len(refused.value.two_lines().splitlines()) <= 2


def test_display_magics_are_left_out() -> None:
    export = export_after(["%matplotlib inline\n%load_ext autoreload"], "%matplotlib inline\nx = 1\n%time y = 2")
    assert text_of(export, "cell.py") == "x = 1\ny = 2\n"


def test_shell_lines_of_earlier_cells_matter_only_where_they_are_needed() -> None:
    cells = ["!ls\nfiles = !ls", "%run other.py\nx = 1", "obj?", "%%bash\nls", "%%writefile a.py\nx = 1", "%pip install nothing"]
    assert "x = 1" in text_of(export_after(cells, "print(x)"))
    with pytest.raises(NotExportable, match="Cell 1, line 2: `!ls` is a shell command"):
        export_after(cells, "print(files)")


def test_await_in_a_function_is_python() -> None:
    export_after(["async def f():\n    await g()"], "import asyncio\nasync def g():\n    await f()\nasyncio.run(g())")


def test_syntax_error_names_the_cells_line() -> None:
    with pytest.raises(SyntaxError) as refused:
        read_cell("x = 1\ny = (", cell=4, transform=transform, first_line=2)
    assert (refused.value.filename, refused.value.lineno) == ("cell [4]", 3)


def test_environment_magic_is_carried_as_what_it_means() -> None:
    main = text_of(export_after(["%env GPL_A=1 2", "%set_env GPL_B 3", "%env"], "pass"))
    assert "__import__('os').environ.update({'GPL_A': '1 2'})" in main
    assert "__import__('os').environ.update({'GPL_B': '3'})" in main


@pytest.mark.parametrize("mark", ["\f", "\v", "\x1c", "\x85", "\u2028"])
@pytest.mark.filterwarnings("ignore:`make_tokens_by_line`")  # IPython says so when it runs the cell, too
def test_lines_are_those_that_python_counts(mark: str) -> None:
    pieces = read_cell(f"x = '''a{mark}b'''\n# above\ny = 2\n", cell=1, transform=transform).pieces
    assert [(piece.source, piece.line) for piece in pieces] == [(f"x = '''a{mark}b'''\n", 1), ("# above\ny = 2\n", 2)]


def test_line_ends_of_another_system_stay_as_they_are() -> None:
    assert _sources("x = 1\r\ny = [\r\n2]\r\n") == ["x = 1\r\n", "y = [\r\n2]\r\n"]


def test_what_a_timed_line_runs_may_be_another_magic() -> None:
    assert _sources("# why\n%time x = 1") == ["x = 1\n"]
    nested = read_cell("y = 1\n%time %time x = 1", cell=3, transform=transform).pieces
    assert [piece.place() for piece in nested] == ["cell 3, line 1", "cell 3, line 2"]
    with pytest.raises(NotExportable, match="Cell 1, line 2: `!ls` is a shell command"):
        export_after(["y = 1\n%time x = !ls"], "print(x)")


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ("x = 1\nreturn 2", 2),
        ("def f():\n    nonlocal x", 2),
        ("x = 1\n%time (", 2),
        ("y = %time (", 1),
        ("for x in y:\n    pass\nbreak", 3),
        ("x = 1\0", 1),
    ],
)
def test_what_python_refuses_is_an_error_with_the_cells_line(raw: str, line: int) -> None:
    with pytest.raises(SyntaxError) as refused:
        read_cell(raw, cell=4, transform=transform)
    assert (refused.value.filename, refused.value.lineno) == ("cell [4]", line)


@pytest.mark.parametrize("raw", ["x = '\ud800'", "-" * 20_000 + "1"])
def test_text_that_python_cannot_read_is_refused_with_its_place(raw: str) -> None:
    with pytest.raises(NotExportable, match="Cell 4, line 2: Python can't read this cell"):
        read_cell(raw, cell=4, transform=transform, first_line=2)


def test_a_backslash_behind_a_statement_does_not_join_it_with_the_next_one() -> None:
    pieces = read_cell("x = 1 \\\n# only a comment\ny = 'é'; \\\n\nz = 3  # not \\\n", cell=1, transform=transform).pieces
    assert [piece.source for piece in pieces] == ["x = 1\n", "# only a comment\ny = 'é';\n", "z = 3  # not \\\n"]
