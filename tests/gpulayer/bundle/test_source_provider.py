"""What a script ships when it launches itself, and how its job's output is shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gpulayer.bundle.source_provider import ScriptProvider, current_provider

PROGRAM = """
from gpulayer.bundle.source_provider import current_provider
from gpulayer.errors import GPUlayerError
try:
    source = current_provider(in_terminal=print).collect()
    print(source.script, source.args, source.title, sorted(source.bundle.files))
except GPUlayerError as error:
    print(error.code, error.message)
"""


def _run(*args: str, cwd: Path) -> str:
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, *args], cwd=cwd, env=env, capture_output=True, text=True, check=True).stdout.strip()


def test_a_script_ships_its_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "train.py").write_text(PROGRAM)
    (tmp_path / "part" / "other.py").write_text("")
    expected = "part/train.py ('--epochs', '3') train ['part/other.py', 'part/train.py', 'pyproject.toml']"
    assert _run("train.py", "--epochs", "3", cwd=tmp_path / "part") == expected
    assert _run("part/train.py", "--epochs", "3", cwd=tmp_path) == expected


def test_what_has_no_script_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "mod.py").write_text(PROGRAM)
    assert _run("-c", PROGRAM, cwd=tmp_path).startswith("not_exportable There is no script")
    assert _run("-m", "pkg.mod", cwd=tmp_path).startswith("not_exportable A module of a package")


def test_a_script_shows_its_job_as_it_is_told() -> None:
    shown: list[object] = []
    ScriptProvider(shown.append).follow("the job")
    assert shown == ["the job"]


def test_outside_ipython_the_script_provides_the_source() -> None:
    assert isinstance(current_provider(in_terminal=print), ScriptProvider)
