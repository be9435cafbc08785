"""Data files of this machine that code names and that do not travel."""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from support.notebook import export_after


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train.csv", "data/train.csv", "data/my test.csv", "pkg/__init__.py", "pkg/words.txt", "train", "images/x/1.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1,2")
    return tmp_path


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ("open('train.csv')", ["train=train.csv"]),
        ("open('./train.csv', 'rb')\nopen('train.csv')", ["train=./train.csv", "train-2=train.csv"]),
        ("from pathlib import Path\nPath('data') / 'train.csv'", ["train=data/train.csv"]),
        ("import os\nos.path.join('data', 'my test.csv')", ["'my-test=data/my test.csv'"]),
        ("def f():\n    return open('train.csv')\nf()", ["train=train.csv"]),
        ("x = {'root': 'images/x'}", ["x=images/x"]),
        # Words, files that travel, files that are written, documentation.
        ("x = ['images', '.', './', '', 'nothing.csv', 'data']", []),
        ("import pkg\nopen('pkg/words.txt')", []),
        ("open('train.csv', 'w')\nimport pathlib\npathlib.Path('train.csv').write_text('')\nx = [1]\nx.to_csv('train.csv')", []),
        ("def f():\n    'train.csv'\n", []),
        ("import sys\nsys.path.append('images/x')", []),
        # What the job fetches for itself.
        ("import prep\nprep.download('https://example.invalid', 'train.csv')", []),
    ],
)
def test_options_that_send_the_files(body: str, options: list[str], folder: Path) -> None:
    hints = export_after([], body, folder=folder, module_path=("",)).file_hints
    assert [hint.partition("--input ")[2].removesuffix(" sends it.") for hint in hints] == options


def test_place_is_the_notebooks(folder: Path) -> None:
    hints = export_after(["\nname = 'train.csv'", "unused = 'data/train.csv'"], "open(name)", folder=folder).file_hints
    assert hints == ("'train.csv' (cell 1, line 2) is there on this machine and does not travel; --input train=train.csv sends it.",)


def test_a_file_that_run_ran(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    reads = "'train.csv'\nimport pathlib, sys\nread = lambda name: pathlib.Path(name).read_text()\n"
    Path("prepare.py").write_text(f"{reads}rows = read('train.csv') + read(sys.argv[1])\n")
    for name in ("train.csv", "more.csv"):
        Path(name).write_text("1")
    shell.run_cell("first = 1\n%run prepare.py more.csv", store_history=True)
    shell.run_cell("%%gpulayer --dry-run\nprint(rows)", store_history=True)
    hints = [line.strip().partition(" is there")[0] for line in capsys.readouterr().out.splitlines() if "does not travel" in line]
    assert hints == ["'more.csv' (cell 1, line 2)", "'train.csv' (cell 1, line 2, %run prepare.py line 4)"]


def test_the_files_of_a_sent_value_travel(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.npy").write_text("another one")
    shell.run_cell("import numpy as np\nx = np.zeros(1000)", store_history=True)
    shell.run_cell("%%gpulayer --dry-run --send x\nprint(x)", store_history=True)
    shown = capsys.readouterr().out
    assert "file sent/x.npy: " in shown
    assert "does not travel" not in shown
