"""The Chromium that the browser's benchmarks drive, and how they let a script of node drive it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

UI_TESTS = Path(__file__).parents[1] / "labextension" / "ui-tests"


def chromium() -> str:
    """The browser that the tests use.

    Raises:
        SystemExit: what it needs was never installed.
    """
    if not (UI_TESTS / "node_modules").is_dir():
        raise SystemExit("This needs the packages of labextension/ui-tests: run `make browser` first.")
    found = subprocess.run([sys.executable, UI_TESTS / "browser.py"], capture_output=True, text=True)
    if found.returncode != 0:
        raise SystemExit(found.stderr)
    return found.stdout.strip()


def in_browser(script: str, **asked: Any) -> dict[str, Any]:
    """What a script beside this file prints, asked with one JSON object.

    Raises:
        SystemExit: it failed; with what it said.
    """
    argv = ["node", str(Path(__file__).with_name(script)), json.dumps(asked)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=500)
    if done.returncode != 0:
        raise SystemExit(f"{script} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
