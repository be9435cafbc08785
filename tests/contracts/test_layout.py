"""The house rules that a reader would otherwise have to remember."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = [ROOT / "gpulayer", ROOT / "server" / "gpulayer_server", ROOT / "jupyter_ext" / "gpulayer_jupyter"]
BANNED_NAMES = {"utils", "helpers", "common", "misc", "util", "base"}
LONGER_THAN_400: dict[str, str] = {}
"""Path → why it is one idea all the same."""


def modules() -> list[Path]:
    return sorted(path for root in PRODUCT for path in root.rglob("*.py"))


def test_no_module_hides_a_second_idea() -> None:
    long = {str(path.relative_to(ROOT)) for path in modules() if len(path.read_text().splitlines()) > 400}
    assert long <= set(LONGER_THAN_400)


def test_modules_are_named_for_what_they_own() -> None:
    assert [path for path in modules() if path.stem in BANNED_NAMES] == []


def test_every_module_says_what_lives_in_it() -> None:
    silent = [path for path in modules() if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None]
    assert silent == []


def test_container_folders_are_not_packages() -> None:
    assert not (ROOT / "server" / "__init__.py").exists()
    assert not (ROOT / "jupyter_ext" / "__init__.py").exists()


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("import time\ntime.sleep(1)\n", "TID251"),
        ("import asyncio\n\n\nasync def wait() -> None:\n    await asyncio.sleep(1)\n", "TID251"),
        ("import pickle\n", "TID251"),
        ("import torch\n\ntorch.load('x')\n", "TID251"),
        ("import os\n\nos.fork()\n", "TID251"),
        ("import subprocess\n\nsubprocess.Popen(['x'], preexec_fn=print)\n", "PLW1509"),
        ("import server\n", "TID251"),
        ("try:\n    pass\nexcept Exception:\n    pass\n", "BLE001"),
    ],
)
def test_lint_catches_what_the_rules_forbid(code: str, rule: str) -> None:
    ruff = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--output-format", "json", "--stdin-filename", "gpulayer/worker/sample.py", "-"],
        input=code,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert rule in {found["code"] for found in json.loads(ruff.stdout)}
