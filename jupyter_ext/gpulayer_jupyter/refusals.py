"""How errors of the kernel's own side look under a cell beside what `gpulayer.errors` gives IPython: without our frames.

The exceptions stay what they are, so that a cell goes red and `except` works. How a job failed is told in `cell_places.py`.
Runs in the kernel.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from gpulayer.errors import NotExportable

P = ParamSpec("P")
R = TypeVar("R")


def shown(function: Callable[P, R]) -> Callable[P, R]:
    """Make a syntax error of the cell, and an interrupt, that leave the function appear without GPUlayer's frames."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except SyntaxError as error:
            raise _syntax_refusal(error) from None
        except KeyboardInterrupt as interrupt:
            _show_as(interrupt, "KeyboardInterrupt")
            raise

    return wrapper


def _syntax_refusal(error: SyntaxError) -> NotExportable:
    """A syntax error of the cell as Python shows it; IPython would show a SyntaxError with every frame of ours above."""
    refusal = NotExportable(f"SyntaxError: {error.msg} ({error.filename}, line {error.lineno})")
    _show_as(refusal, "".join(traceback.format_exception_only(error)).rstrip())
    return refusal


def _show_as(error: BaseException, text: str) -> None:
    """Let IPython show this text for the error: it asks the exception itself for its traceback."""
    vars(error)["_render_traceback_"] = lambda: [text]
