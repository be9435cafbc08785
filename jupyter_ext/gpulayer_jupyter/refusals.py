"""How errors look under a cell beside what `gpulayer.errors` gives IPython: in the cells' own lines, without our frames.

The exceptions stay what they are, so that a cell goes red and `except JobFailed` works. Runs in the kernel.
"""

from __future__ import annotations

import functools
import re
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from gpulayer.errors import JobFailed, NotExportable
from gpulayer_jupyter.export.script import Program

P = ParamSpec("P")
R = TypeVar("R")

_FRAME = re.compile(r'^(?P<indent>\s*)File "(?P<path>[^"]+)", line (?P<line>\d+)(?P<rest>.*)$')
_WORKSPACE = re.compile(r'(?<=")[^"\n]*/source/(?=[^"\n]+")')


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


def tell_in_cells(failed: JobFailed, program: Program | None) -> None:
    """Write the guilty rank's traceback in the notebook's cells and lines."""
    told = failed.details.get("traceback")
    if told:
        failed.details["traceback"] = cell_traceback(str(told), program)


class LineTranslator:
    """One stream's lines as they come, with the cells' places in the tracebacks that a rank prints.

    Args:
        program: whose files the places are in.
        rank: whose stderr it is. torch.distributed puts `[rank0]: ` before each line of a traceback, as the display does.
    """

    def __init__(self, program: Program | None, *, rank: int | None = None) -> None:
        self._program = program
        self._prefix = f"[rank{rank}]: " if rank is not None else ""
        self._dropping = False

    def translate(self, text: str) -> str | None:
        """The line as it is shown; None for the frame that joins `main.py` and `cell.py`."""
        text = text.removeprefix(self._prefix)
        frame = _FRAME.match(text)
        if frame is None:
            self._dropping = self._dropping and text.startswith("    ")
            return None if self._dropping else _WORKSPACE.sub("", text)
        place = place_in_cells(frame["path"], int(frame["line"]), self._program)
        if place is not None:
            self._dropping = False
            return f"{frame['indent']}{place}{frame['rest']}"
        folder, _, name = frame["path"].rpartition("/")
        self._dropping = self._program is not None and folder.endswith("/source") and name in self._program.files
        return None if self._dropping else _WORKSPACE.sub("", text)


def cell_traceback(told: str, program: Program | None) -> str:
    """A rank's traceback with `main.py` and `cell.py` lines as cells and lines, and without the frame that joins the two."""
    translator = LineTranslator(program)
    return "\n".join(text for text in map(translator.translate, told.splitlines()) if text is not None)


def place_in_cells(path: str, line: int, program: Program | None) -> str | None:
    """`Cell [3], line 5` for a line of the program's own files."""
    folder, _, name = path.rpartition("/")
    if program is None or not folder.endswith("/source"):
        return None
    for piece in program.lines:
        if piece.file == name and piece.first <= line < piece.first + piece.count:
            return f"Cell [{program.cells[piece.cell - 1]}], line {piece.line + line - piece.first}"
    return None
