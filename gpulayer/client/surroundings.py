"""Whether this process is an IPython shell or a notebook's kernel, asked without importing IPython: words and forms depend on it."""

from __future__ import annotations

import sys
from typing import Any


def in_ipython() -> bool:
    """Whether code runs in an IPython shell: a kernel, or a terminal."""
    return _shell() is not None


def in_notebook() -> bool:
    """Whether a kernel runs it, so that what is displayed is kept in a document."""
    return getattr(_shell(), "kernel", None) is not None


def command_text(words: str) -> str:
    """A command as a person writes it here: `%gpulayer jobs` in IPython, `gpulayer jobs` in a terminal."""
    return f"{'%' if in_ipython() else ''}gpulayer {words}"


def _shell() -> Any:
    # Nothing imports IPython for the sake of this question: where it is not loaded, nobody is in it.
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None
