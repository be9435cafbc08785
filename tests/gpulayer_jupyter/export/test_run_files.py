"""`%run file.py`: what the file bound when it ran is bound in the program, as IPython would."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.notebook import export_after, new_shell, run_program, text_of

FILE = """import sys
from beside import TWO
k = TWO + 1
words = sys.argv[1:]
def scaled(a):
    return a * k
if __name__ == "__main__":
    ran = 1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside.py").write_text("TWO = 2\n")
    (tmp_path / "prepare.py").write_text(FILE)
    (tmp_path / "shares.py").write_text("twice = given * 2\n")
    return tmp_path


@pytest.mark.parametrize(
    ("cells", "shown", "value"),
    [
        (["%run prepare.py a 'b c'"], "k, words, ran", "(3, ['a', 'b c'], 1)"),
        (["%run prepare"], "scaled(2)", "6"),
        (["%run prepare.py", "k = 50"], "scaled(2), k", "(6, 50)"),
        (["%run -n prepare.py"], "'ran' in globals()", "False"),
        (["given = 4", "%run -i shares.py"], "twice", "8"),
        (["%run prepare.py", "words.append(k)"], "words", "[3]"),
    ],
)
def test_the_program_binds_what_the_file_bound(cells: list[str], shown: str, value: str, folder: Path) -> None:
    export = export_after(cells, f"print(repr(({shown})))", folder=folder, module_path=[str(folder)])
    done = run_program(export, folder / "rank")
    assert done.stderr == ""
    assert done.stdout == f"{value}\n"


def test_the_file_as_it_was_when_it_ran_travels(folder: Path) -> None:
    from gpulayer_jupyter.export.provider import recorder_of, stop_recording

    shell = new_shell()
    recorder = recorder_of(shell)
    shell.run_cell("%run prepare.py")
    (folder / "prepare.py").write_text("k = 1000\n")
    export = export_after(recorder.history, "print(k)", folder=folder, module_path=[str(folder)])
    stop_recording(shell)
    assert run_program(export, folder / "rank").stdout == "3\n"


def test_a_file_that_is_not_needed_stays(folder: Path) -> None:
    export = export_after(["%run prepare.py", "x = 1"], "print(x)", folder=folder)
    assert "prepare" not in text_of(export)
    assert not [name for name in export.bundle.files if name.startswith("scripts/")]
