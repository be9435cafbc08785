"""How errors look under a cell: GPUlayer's own refusals as two lines, a rank's failure as the rank's own traceback.

The exceptions stay what they are, so that a cell goes red and `except JobFailed` works. Runs in the kernel.
"""

from __future__ import annotations

import functools
import re
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from gpulayer.errors import GPUlayerError, JobFailed, NotExportable
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
        except SyntaxError as error:
            raise _syntax_refusal(error) from None
        except KeyboardInterrupt as interrupt:
            show_as(interrupt, ["KeyboardInterrupt"])
            raise

    return wrapper


def _syntax_refusal(error: SyntaxError) -> NotExportable:
    """A syntax error of the cell as Python shows it; IPython would show a SyntaxError with every frame of ours above."""
    refusal = NotExportable(f"SyntaxError: {error.msg} ({error.filename}, line {error.lineno})")
    show_as(refusal, "".join(traceback.format_exception_only(error)).rstrip().splitlines())
    return refusal


def show_as(error: BaseException, lines: list[str]) -> None:
    """Let IPython show these lines for the error; what was set first stays."""
    # IPython asks the exception itself for its traceback; one text, since each of its modes joins lines differently.
    vars(error).setdefault("_render_traceback_", lambda: ["\n".join(lines)])


def show_failure(failed: JobFailed, program: Program | None) -> None:
    """Show the guilty rank first, then its traceback in the notebook's cells and lines."""
    lines = [f"{type(failed).__name__}: {failed.message}"]
    told = failed.details.get("traceback")
    if told:
        lines += ["", *cell_traceback(str(told), program).rstrip().splitlines(), "", _read_more(failed)]
    elif failed.fix:
        lines.append(failed.fix)
    show_as(failed, lines)


def _read_more(failed: JobFailed) -> str:
    rank = (failed.details.get("failure") or {}).get("rank")
    return f"All its output: %gpulayer logs {failed.details.get('job_id')}{f' --rank {rank}' if rank is not None else ''}"


class LineTranslator:
    """One stream's lines as they come, with the cells' places in the tracebacks that a rank prints."""

    def __init__(self, program: Program | None) -> None:
        self._program = program
        self._dropping = False

    def translate(self, text: str) -> str | None:
        """The line as it is shown; None for the frame that joins `main.py` and `cell.py`."""
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
