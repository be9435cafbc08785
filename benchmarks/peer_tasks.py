"""What a peer's worker does. A module of its own that imports nothing of ours: a peer's worker imports it to find the functions."""

from __future__ import annotations

import subprocess


def start_python(python: str) -> int:
    """Cold: what GPUlayer's worker does for a job."""
    return subprocess.run([python, "-c", "pass"], check=True).returncode


def do_nothing() -> int:
    """Warm: the least that a worker which is there already can be asked for."""
    return 0
