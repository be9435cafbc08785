"""Who reads a file needs who wrote it, and nobody else does; the working directory travels where the history made it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.notebook import export_after, run_program, text_of

WRITE = "with open('a.txt', 'w') as out:\n    out.write('1')"


@pytest.mark.parametrize(
    ("cells", "body", "kept", "left"),
    [
        ([WRITE, "open('b.txt', 'w').write('2')"], "print(open('a.txt').read())", "a.txt", "b.txt"),
        (["import torch", "torch.save({}, 'm.pt')", "torch.save({}, 'n.pt')"], "torch.load('m.pt')", "m.pt", "n.pt"),
        (["import torch", "torch.save({}, 'm.pt')"], "torch.zeros(1)", "import torch", "m.pt"),
        (
            ["from pathlib import Path\nOUT = Path('out')", "OUT.mkdir()", "(OUT / 'a').write_text('1')"],
            "print((OUT / 'a').read_text())", "mkdir", "nothing",
        ),
        (
            ["def save(where):\n    open(where, 'w').write('1')", "save('a.txt')", "save('b.txt')"],
            "print(open('a.txt').read())", "'a.txt'", "'b.txt'",
        ),
        (
            ["from lib import fetch", "open('log.txt', 'a').write('1')", "path = fetch('https://host/x.csv', 'copy.csv')"],
            "print(open(path).read())", "copy.csv", "log.txt",
        ),
        (
            ["from lib import settings", "open('log.txt', 'a').write('1')", "cfg = settings('cfg.json')"],
            "print(open(cfg.log).read())", "log.txt", "nothing",
        ),
        (["out = open('a.txt', 'w')", "out.write('1')", "out.close()"], "print(open('a.txt').read())", "out.close()", "nothing"),
        (["open('a.csv', 'w').write('1')", WRITE], "import glob\nprint(glob.glob('*.csv'))", "a.csv", "a.txt"),
        (["import os\nos.makedirs('work')", "os.chdir('work')"], "open('x', 'w')", "chdir", "nothing"),
        (["import os\nos.chdir('/data/project')"], "open('x', 'w')", "# Written", "chdir"),
        (["import os\nos.chdir('/data/project')"], "open('x')", "chdir", "nothing"),
        (["import os\nos.chdir('..')", "x = 1"], "print(x)", "x = 1", "chdir"),
    ],
)  # fmt: skip
def test_what_a_file_needs_travels(cells: list[str], body: str, kept: str, left: str) -> None:
    main = text_of(export_after(cells, body))
    assert kept in main
    assert left not in main


def test_a_folder_that_is_not_there_is_said_and_changes_nothing(tmp_path: Path) -> None:
    done = run_program(export_after(["%cd nowhere", "import os"], "print(os.path.basename(os.getcwd()))"), tmp_path / "worker")
    assert "nowhere" not in done.stdout.splitlines()[-1]
    assert done.returncode == 0, done.stderr
