"""How errors look under a cell: GPUlayer's own refusals as two lines, a rank's failure as the rank's own traceback.

The exceptions stay what they are, so that a cell goes red and `except JobFailed` works. Runs in the kernel.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from gpulayer.errors import GPUlayerError, JobFailed
from gpulayer_jupyter.export.script import Program

P = ParamSpec("P")
R = TypeVar("R")

_FRAME = re.compile(r'^(?P<indent>\s*)File "(?P<path>[^"]+)", line (?P<line>\d+)(?P<rest>.*)$')
_WORKSPACE = re.compile(r'(?<=")[^"\n]*/source/(?=[^"\n]+")')


def shown(function: Callable[P, R]) -> Callable[P, R]:
    """Make GPUlayer's errors that leave the function appear without a traceback through its internals."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except GPUlayerError as error:
            show_as(error, [f"{type(error).__name__}: {error.two_lines()}"])
            raise
        except KeyboardInterrupt as interrupt:
            show_as(interrupt, ["KeyboardInterrupt"])
            raise

    return wrapper


def show_as(error: BaseException, lines: list[str]) -> None:
    """Let IPython show these lines for the error; what was set first stays."""
    # IPython asks the exception itself for its traceback.
    vars(error).setdefault("_render_traceback_", lambda: lines)


def show_failure(failed: JobFailed, program: Program | None) -> None:
    """Show the guilty rank first, then its traceback in the notebook's cells and lines."""
    lines = [f"{type(failed).__name__}: {failed.message}"]
    traceback = failed.details.get("traceback")
    if traceback:
        lines += ["", *cell_traceback(str(traceback), program).rstrip().splitlines(), ""]
    if failed.fix:
        lines.append(failed.fix)
    show_as(failed, lines)


def cell_traceback(traceback: str, program: Program | None) -> str:
    """A rank's traceback with `main.py` and `cell.py` lines as cells and lines, and without the frame that joins the two."""
    shown_lines: list[str] = []
    dropping = False
    for text in traceback.splitlines():
        frame = _FRAME.match(text)
        if frame is not None:
            dropping = False
            place = place_in_cells(frame["path"], int(frame["line"]), program)
            if place is not None:
                text = f"{frame['indent']}{place}{frame['rest']}"
            elif program is not None and frame["path"].rpartition("/")[2] in program.files and "/source/" in frame["path"]:
                dropping = True
            else:
                text = _WORKSPACE.sub("", text)
        elif not text.startswith("    "):
            dropping = False
        if not dropping:
            shown_lines.append(text)
    return "\n".join(shown_lines)


def cell_line(text: str, program: Program | None) -> str:
    """One line of output; the same for a traceback that a rank printed."""
    if 'File "' not in text:
        return text
    frame = _FRAME.match(text)
    if frame is not None:
        place = place_in_cells(frame["path"], int(frame["line"]), program)
        if place is not None:
            return f"{frame['indent']}{place}{frame['rest']}"
    return _WORKSPACE.sub("", text)


def place_in_cells(path: str, line: int, program: Program | None) -> str | None:
    """`Cell [3], line 5` for a line of the program's own files."""
    folder, _, name = path.rpartition("/")
    if program is None or not folder.endswith("/source"):
        return None
    for piece in program.lines:
        if piece.file == name and piece.first <= line < piece.first + piece.count:
            return f"Cell [{program.cells[piece.cell - 1]}], line {piece.line + line - piece.first}"
    return None
