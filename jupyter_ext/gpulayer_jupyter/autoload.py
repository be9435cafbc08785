"""`%gpulayer autoload`: a line in the profile's configuration by which IPython loads the magics at its start.

Runs in the kernel; writes one file, and says which.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

LINE = 'c.InteractiveShellApp.extensions.append("gpulayer")  # by %gpulayer autoload\n'
_MARK = "# by %gpulayer autoload"


def turn_on(shell: Any) -> str:
    """Have IPython load the magics at its start; returns what to say about it."""
    file = config_file(shell)
    text = file.read_text("utf-8") if file.exists() else "c = get_config()\n"
    if _MARK in text:
        return f"{file} loads gpulayer already; %gpulayer autoload --off takes it away."
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text.rstrip()}\n{LINE}", "utf-8")
    return f"{file}: kernels and shells of this profile load gpulayer from their next start on; %gpulayer autoload --off takes it away."


def turn_off(shell: Any) -> str:
    """Take the line away; returns what to say about it."""
    file = config_file(shell)
    text = file.read_text("utf-8") if file.exists() else ""
    if _MARK not in text:
        return f"{file} does not load gpulayer."
    left = "".join(line for line in text.splitlines(keepends=True) if _MARK not in line)
    file.write_text(left, "utf-8")
    return f"{file}: gpulayer is loaded by %load_ext gpulayer only."


def config_file(shell: Any) -> Path:
    """The configuration that both kernels and IPython in a terminal read."""
    return Path(shell.profile_dir.location) / "ipython_config.py"
