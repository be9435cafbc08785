"""Cells and the environment of their ranks: what a kernel of another Python is told, and `--requirements`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gpulayer_jupyter.export import bundle_maker
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from support.small_wheel import local_requirements, make_wheel

import gpulayer

HERE = ".".join(map(str, sys.version_info[:3]))


def _run(shell: InteractiveShell, cell: str) -> ExecutionResult:
    return shell.run_cell(cell, store_history=True)


def test_a_kernel_of_another_python_is_told_so_once_and_where_nothing_breaks_the_cell_runs(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(shell, "import msgspec")
    assert _run(shell, "%%gpulayer --as job\nprint(msgspec.__name__)").success
    assert "other versions" not in capsys.readouterr().out
    monkeypatch.setattr(bundle_maker.platform, "python_version", lambda: "3.99.1")
    assert _run(shell, "%%gpulayer --as job\nprint(msgspec.__name__)").success
    shown = capsys.readouterr()
    told = f"has other versions than where the program was written: Python 3.99.1 there, {HERE} here."
    assert (shown.out + shown.err).count(told) == 1
    (task,) = shell.user_ns["job"].status.tasks
    assert task.environment.python == HERE
    assert task.environment.packages == {"msgspec": sys.modules["msgspec"].__version__}


def test_a_kernel_with_another_torch_is_refused_in_two_lines(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_maker, "package_versions", lambda *_: {"Torch": "9.8.7+cpu"})  # the spec requires "torch" by this name
    result = _run(shell, "%%gpulayer --retries 2\nprint('ran')")
    assert isinstance(result.error_in_exec, gpulayer.JobFailed)
    assert "The program was written with Torch 9.8.7+cpu, and this worker has" in result.error_in_exec.message
    assert "[rank 0] ran" not in capsys.readouterr().out


def test_requirements_of_a_cell(shell: InteractiveShell, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "smallone", "1.5")
    Path("requirements.txt").write_text(local_requirements(tmp_path / "wheels", "smallone"))
    cell = "%%gpulayer --requirements requirements.txt --as job\nimport smallone\nprint(smallone.VERSION)"
    assert _run(shell, cell).success
    assert "[rank 0] 1.5" in capsys.readouterr().out
    assert "environment" in [span.step for span in shell.user_ns["job"].waterfall()]
    (rank,) = shell.user_ns["job"].status.tasks[0].ranks
    assert rank.start == "cold"
