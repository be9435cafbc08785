"""`--dry-run`: what is said of values and requirements beside the program."""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell


def _preview(shell: InteractiveShell, capsys: pytest.CaptureFixture[str], options: str, body: str) -> list[str]:
    capsys.readouterr()
    assert shell.run_cell(f"%%gpulayer --dry-run {options}\n{body}", store_history=True).success
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


def test_each_value_with_its_type_and_size(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell("import numpy as np\nx = np.zeros((3, 4))\ny = [1, 2]\nw = y\nn = 5\nscale = np.float32(2)", store_history=True)
    lines = _preview(shell, capsys, "--send x,y,n,scale --fetch total,best", "total = x.sum() + n + len(w) + len(y) + scale\nbest = 1")
    first = lines.index("value x: ndarray 3 × 4 of float64, 224 bytes")
    scale = lines[first + 3]
    assert lines[first + 1 : first + 3] == ["value y: list, 6 bytes", "value n: int, 1 byte"]
    assert scale.startswith("value scale: float32 of one number of float32, ")
    assert lines[first + 4 : first + 6] == ["value w: the same as y", "brings back: total, best"]
    # The statements that bind them stand nowhere in a cell.
    assert [line for line in lines if line.startswith("cell [")] == ["cell [2]  lines 2–3"]


def test_the_programs_own_numbers_of_cells_are_explained_where_they_differ(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell("x = 1", store_history=True)
    assert "main.py:" in _preview(shell, capsys, "", "print(x)")
    assert "main.py (cell 1 is [1], cell 2 is [3]):" in _preview(shell, capsys, "", "print(x)")


def test_what_the_requirements_ask_for(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    Path("needs.txt").write_text("# of the model\nrich==13.9\n-r more.txt\n")
    Path("more.txt").write_text("--extra-index-url https://example.invalid\nsmall>1  # why\n")
    lines = _preview(shell, capsys, "--requirements needs.txt", "print(1)")
    assert "requirements needs.txt: rich==13.9, small>1; the worker builds an environment of it unless it has it" in lines
    Path("more.txt").write_text("-e .\n")
    lines = _preview(shell, capsys, "--requirements needs.txt", "print(1)")
    [told] = [line for line in lines if line.startswith("requirements needs.txt: ")]
    assert "A package of this machine does not travel with the requirements." in told
    assert "more.txt line 1: -e ." in told
