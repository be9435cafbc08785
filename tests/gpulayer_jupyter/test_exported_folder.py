"""`%gpulayer export DIR`: a folder that runs by hand, and nothing that is overwritten."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

from gpulayer.errors import Conflict, InvalidSpec, NotFound


def _run(shell: InteractiveShell, cell: str) -> ExecutionResult:
    return shell.run_cell(cell, store_history=True)


def test_the_folder_of_the_last_cell_runs_by_hand(shell: InteractiveShell, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder_helper.py").write_text("x = 20")
    _run(shell, "from pathlib import Path\nfrom folder_helper import x\ny = Path('log.txt').write_text('1234')")
    _run(shell, "%%gpulayer --dry-run --input data=folder_helper.py\nprint(x)")
    _run(shell, "%%gpulayer --dry-run --devices 2 --input data=folder_helper.py\nprint(x + 1, y)")
    capsys.readouterr()
    target = tmp_path / "some" / "where"
    assert _run(shell, f"%gpulayer export {target}").success
    assert capsys.readouterr().out.splitlines() == [
        f"wrote 4 files into {target}; run it there with: torchrun --nproc-per-node 2 main.py",
        "inputs are not part of it: data (folder_helper.py)",
        "these statements of earlier cells run again with it:",
        "  cell 1, line 3: writes files (Path(…).write_text): y = Path('log.txt').write_text('1234')",
    ]
    assert sorted(path.name for path in target.iterdir()) == ["cell.py", "folder_helper.py", "main.py", "manifest.json"]
    done = subprocess.run([sys.executable, "-I", "main.py"], cwd=target, capture_output=True, text=True, timeout=60, check=False)
    assert "folder_helper" in done.stderr  # isolated, so that this checkout's path does not help
    done = subprocess.run([sys.executable, "main.py"], cwd=target, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "21 4\n", done.stderr
    assert [path.name for path in target.parent.iterdir()] == ["where"]


def test_a_cell_that_ran_and_one_that_was_refused(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(shell, "%%gpulayer\nprint(1)").success
    assert _run(shell, "%gpulayer export out").success
    assert "run it there with: python main.py" in capsys.readouterr().out
    _run(shell, "from pathlib import Path\nx = Path('log.txt').write_text('1')")
    assert not _run(shell, "%%gpulayer\nprint(x)").success
    Path("empty").mkdir()
    assert _run(shell, "%gpulayer export empty").success
    assert "print(x)" in Path("empty/cell.py").read_text()


def test_sent_values_lie_in_the_folder(shell: InteractiveShell, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run(shell, "import dataclasses\nimport numpy as np\nimport torch")
    _run(shell, "@dataclasses.dataclass\nclass Config:\n    rate: float\n    sizes: list")
    _run(shell, "sizes = [1, 2]\nconfig = Config(0.5, sizes)\nx = np.arange(3.0)\nstate = {'w': torch.ones(2), 'name': 'é'}")
    Path("my needs.txt").write_text("# a comment\nsmall-module>=1\n")
    cell = """import os
rank = int(os.environ.get("RANK", 0))
total = x.sum() + state["w"].sum().item() + config.rate
config.sizes.append(rank)
print(f"{total} {state['name']} {config.sizes}\\n", end="")"""
    options = "--devices 2 --send config,x,state --fetch total --requirements 'my needs.txt'"
    assert _run(shell, f"%%gpulayer --dry-run {options}\n{cell}").success
    capsys.readouterr()
    target = tmp_path / "by hand"
    assert _run(shell, f"%gpulayer export '{target}'").success
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"requirements are not part of it; before: pip install -r '{Path('my needs.txt').absolute()}'"
    ]
    for launcher, ranks in (([], 1), (["-m", "torch.distributed.run", "--nproc-per-node", "2"], 2)):
        command = [sys.executable, *launcher, "main.py"]
        done = subprocess.run(command, cwd=target, capture_output=True, text=True, timeout=100, check=False)
        assert sorted(done.stdout.splitlines()) == [f"5.5 é [1, 2, {rank}]" for rank in range(ranks)], done.stderr


def test_several_nodes(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    _run(shell, "%%gpulayer --dry-run --nodes 2 --devices 4\nprint(1)")
    _run(shell, "%gpulayer export out")
    assert "torchrun --nnodes 2 --nproc-per-node 4 --rdzv-endpoint HOST:PORT main.py (on each of 2 nodes)" in capsys.readouterr().out


def test_nothing_is_overwritten(shell: InteractiveShell, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(_run(shell, "%gpulayer export out").error_in_exec, NotFound)
    assert isinstance(_run(shell, "%gpulayer export").error_in_exec, UsageError)
    assert isinstance(_run(shell, "%gpulayer export out more").error_in_exec, UsageError)
    _run(shell, "%%gpulayer --dry-run\nprint(1)")
    Path("full").mkdir()
    Path("full/mine.txt").write_text("mine")
    Path("file").write_text("mine")
    Path("empty").mkdir()
    Path("link").symlink_to("empty")
    for name in ("full", "file", "link"):
        assert isinstance(_run(shell, f"%gpulayer export {name}").error_in_exec, Conflict)
    assert Path("full/mine.txt").read_text() == Path("file").read_text() == "mine"
    assert isinstance(_run(shell, "%gpulayer export file/below").error_in_exec, InvalidSpec)
    assert sorted(path.name for path in Path().iterdir()) == ["empty", "file", "full", "link"]
