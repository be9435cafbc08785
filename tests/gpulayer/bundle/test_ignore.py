"""The ignore rules against git itself, on random trees."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from gpulayer.bundle.collect import survey_sources

NAMES = ["a", "b", "keep", "build", "x.py", "y.pyc", "data.bin", "dist", "é", "à", "sp ace", "#hash", "!bang", "deep"]
PATTERNS = [
    "*",
    "*.pyc",
    "/build",
    "build/",
    "!keep",
    "!keep/",
    "keep/*",
    "!keep/x.py",
    "a/b",
    "a/**",
    "**/b",
    "a/**/x.py",
    "/*",
    "!/a",
    "!*.py",
    "d*/",
    "[a-b]",
    "[!a-k]*",
    "?",
    "# comment",
    "\\#hash",
    "\\!bang",
    "sp ace",
    "b/   ",
    "**/",
    "*/",
    "é",
    "à",
    "deep/a",
    "!deep/",
    "/a/b/",
    "",
    "/",
    "x.py\r",
    "[",
    "**",
    "!**/keep/**",
]


def _git(folder: Path, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    return subprocess.run(["git", *args], cwd=folder, env=env, input=stdin, capture_output=True, check=False)


def _grow(chance: random.Random, folder: Path, depth: int) -> None:
    folder.mkdir(exist_ok=True)
    for name in chance.sample(NAMES, chance.randint(1, 4)):
        if depth and chance.random() < 0.6:
            _grow(chance, folder / name, depth - 1)
        else:
            (folder / name).write_text(name)
    if chance.random() < 0.45:
        (folder / ".gitignore").write_text("\n".join(chance.sample(PATTERNS, chance.randint(1, 4))), newline="")


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_a_random_tree_is_judged_as_git_judges_it(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 20):
        top = tmp_path / str(seed)
        _grow(random.Random(seed), top, 3)
        assert _git(top, "init", "-q").returncode == 0
        everything = sorted(
            path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file() and ".git" not in path.relative_to(top).parts
        )
        asked = _git(top, "check-ignore", "-z", "--stdin", stdin="\0".join(everything).encode())
        ignored = set(asked.stdout.decode().split("\0")) - {""}
        found = set(survey_sources(top).bundle.files)
        rules = {str(path.relative_to(top)): path.read_text() for path in top.rglob(".gitignore")}
        assert found == set(everything) - ignored, (seed, rules)


def test_a_folder_inside_a_repository_obeys_the_rules_above_it(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.log\n/part/secret\n")
    part = tmp_path / "part"
    part.mkdir()
    for name in ("a.log", "secret", "main.py"):
        (part / name).write_text("")
    assert set(survey_sources(part).bundle.files) == {"main.py"}


def test_the_rule_that_left_a_file_out_is_named_and_include_overrides_it(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("# data\n*.bin\nlogs/\n")
    (tmp_path / "model.bin").write_text("")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "run.txt").write_text("")
    (tmp_path / "main.py").write_text("")
    found = survey_sources(tmp_path)
    assert {(entry.path, entry.rule) for entry in found.left_out} == {
        ("model.bin", ".gitignore:2: *.bin"),
        ("logs", ".gitignore:3: logs/"),
    }
    again = survey_sources(tmp_path, include=["*.bin", "logs/run.txt"])
    assert set(again.bundle.files) == {".gitignore", "main.py", "model.bin", "logs/run.txt"}
    assert set(survey_sources(tmp_path, exclude=["main.*"]).bundle.files) == {".gitignore"}


def test_gpulayerignore_comes_after_gitignore(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.csv\n")
    (tmp_path / ".gpulayerignore").write_text("!small.csv\nbig.py\n")
    for name in ("small.csv", "large.csv", "big.py"):
        (tmp_path / name).write_text("")
    assert set(survey_sources(tmp_path).bundle.files) == {".gitignore", ".gpulayerignore", "small.csv"}
