"""`%gpulayer autoload`: a line in the profile's configuration by which IPython loads the magics at its start.

Runs in the kernel; writes one file, and says which.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

LINE = 'c.InteractiveShellApp.extensions.append("gpulayer")  # by %gpulayer autoload\n'
_MARK = b"# by %gpulayer autoload"


def turn_on(shell: Any) -> str:
    """Have IPython load the magics at its start; returns what to say about it.

    Raises:
        UsageError: the file can't be read or written.
    """
    file = config_file(shell)
    with _told(file):
        data = file.read_bytes() if file.exists() else b"c = get_config()\n"
        if _MARK in data:
            return f"{file} loads gpulayer already; %gpulayer autoload --off takes it away."
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((data if data.endswith(b"\n") else data + b"\n") + LINE.encode())
    return f"{file}: kernels and shells of this profile load gpulayer from their next start on; %gpulayer autoload --off takes it away."


def turn_off(shell: Any) -> str:
    """Take the line away; returns what to say about it.

    Raises:
        UsageError: the file can't be read or written.
    """
    file = config_file(shell)
    with _told(file):
        data = file.read_bytes() if file.exists() else b""
        if _MARK not in data:
            return f"{file} does not load gpulayer."
        file.write_bytes(b"".join(line for line in data.splitlines(keepends=True) if _MARK not in line))
    return f"{file}: gpulayer is loaded by %load_ext gpulayer only."


@contextlib.contextmanager
def _told(file: Path) -> Iterator[None]:
    """What the file system refuses, with what a person can do instead."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{file} can't be changed: {error.strerror or error}.\nThe line that loads gpulayer: {LINE.rstrip()}") from error


def config_file(shell: Any) -> Path:
    """The configuration that both kernels and IPython in a terminal read."""
    return Path(shell.profile_dir.location) / "ipython_config.py"
