"""What a script ships when it launches itself, and how its job's output is shown."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpulayer.bundle.source_provider import ScriptProvider, current_provider
from gpulayer.errors import JobFailed

PROGRAM = """
from gpulayer.bundle.source_provider import current_provider
from gpulayer.errors import GPUlayerError
try:
    source = current_provider().collect()
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


@dataclass
class Line:
    rank: int | None
    stream: str
    text: str


class Followed:
    """A job as `follow` sees it."""

    name = "training"

    def __init__(self, lines: list[Line | BaseException], ends: BaseException | None = None) -> None:
        self.lines = lines
        self.ends = ends
        self.did: list[str] = []

    def follow_logs(self):
        for line in self.lines:
            if isinstance(line, BaseException):
                raise line
            yield line

    def download(self, destination: Path) -> list[Path]:
        self.did.append(f"download {destination}")
        return []

    def result(self) -> None:
        if self.ends is not None:
            raise self.ends

    def cancel(self, force: bool = False) -> None:
        self.did.append("cancel")


def test_lines_are_shown_with_their_rank(capsys: pytest.CaptureFixture[str]) -> None:
    job = Followed([Line(0, "stdout", "a"), Line(3, "stderr", "bad\n"), Line(None, "stdout", "launcher")])
    ScriptProvider().follow(job)
    out, err = capsys.readouterr()
    assert out == "[rank 0] a\nlauncher\n"
    assert err == "[rank 3] bad\n"
    assert job.did == ["download gpulayer_runs/training"]


def test_a_failed_job_is_raised_after_its_outputs_came(capsys: pytest.CaptureFixture[str]) -> None:
    job = Followed([], ends=JobFailed("rank 1 raised"))
    with pytest.raises(JobFailed):
        ScriptProvider().follow(job)
    assert job.did == ["download gpulayer_runs/training"]


def test_an_interrupt_stops_the_job() -> None:
    job = Followed([Line(0, "stdout", "a"), KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        ScriptProvider().follow(job)
    assert job.did == ["cancel"]


def test_outside_ipython_the_script_provides_the_source() -> None:
    assert isinstance(current_provider(), ScriptProvider)
