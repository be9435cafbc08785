"""Says how a script's exception is shown and told: the traceback on stderr, and the plain fields of a `RankError`.

Runs in the rank, and imports nothing that takes time to load. What carries the fields to the agent is rank_main's.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
import traceback
import types
from pathlib import Path
from typing import Any

MOST_FRAMES = 50
LONGEST_LINE = 200
LONGEST_MESSAGE = 64 * 1024
LONGEST_TRACEBACK = 256 * 1024

# What stands above the script on its stack.
_OURS = frozenset({__file__, str(Path(__file__).with_name("rank_main.py"))})


def report_error(error: BaseException) -> dict[str, Any]:
    """Print the traceback as Python would, without the frames of the rank's entry, and return the fields of a `RankError`."""
    tail = error.__traceback__
    while tail is not None and tail.tb_frame.f_code.co_filename in _OURS:
        tail = tail.tb_next
    if (bdb := sys.modules.get("bdb")) is not None and isinstance(error, bdb.BdbQuit):
        tail = _without_debugger(tail, {bdb.__file__, getattr(sys.modules.get("pdb"), "__file__", None)})
    error = error.with_traceback(tail)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    try:
        sys.excepthook(type(error), error, tail)
        sys.stderr.flush()
    except Exception as hook_error:  # noqa: BLE001 - a hook of the user's; the rank's own error is what counts
        with contextlib.suppress(OSError, ValueError, AttributeError):
            print(f"sys.excepthook failed: {hook_error!r}", file=sys.stderr)  # noqa: T201
    return {
        "type": _escape(_full_name(type(error))),
        "message": _bounded(_escape(_message(error)), LONGEST_MESSAGE),
        "traceback": _bounded(_escape("".join(traceback.format_exception(type(error), error, tail))), LONGEST_TRACEBACK),
        "frames": _frames(error, tail),
    }


def _frames(error: BaseException, tail: types.TracebackType | None) -> list[dict[str, Any]]:
    """The script's frames, the innermost last; of a deep stack both ends.

    Those of the error itself: what it was raised from (`__cause__`, `__context__`) is in the traceback's text.
    """
    entries = []
    while tail is not None:
        entries.append((tail.tb_frame, tail.tb_lineno))
        tail = tail.tb_next
    syntax = _syntax_place(error)
    most = MOST_FRAMES - (syntax is not None)
    if len(entries) > most:
        entries = entries[: most // 2] + entries[len(entries) - (most - most // 2) :]
    frames = [
        # An instruction that the compiler made has no line.
        _frame(code.co_filename, line or code.co_firstlineno, code.co_name, frame.f_globals)
        for frame, line in entries
        for code in (frame.f_code,)
    ]
    return frames if syntax is None else [*frames, syntax]


def _syntax_place(error: BaseException) -> dict[str, Any] | None:
    """The line that doesn't compile: it never ran, so no stack has it. None for code that is in no file."""
    if not isinstance(error, SyntaxError) or not isinstance(error.filename, str) or error.filename.startswith("<"):
        return None
    if not isinstance(error.lineno, int):
        return None
    said = error.text if isinstance(error.text, str) else None
    return _frame(error.filename, error.lineno, "<module>", None, said)


def _frame(file: str, line: int, function: str, module: dict[str, Any] | None, text: str | None = None) -> dict[str, Any]:
    if text is None:
        text = _source_line(file, line, module)
    return {
        "file": _escape(file),
        "line": line,
        "function": _escape(function),
        "text": _escape(text.strip()[:LONGEST_LINE]) or None,
    }


def _source_line(file: str, line: int, module: dict[str, Any] | None) -> str:
    """That line of the source; nothing where it can't be read."""
    try:
        return linecache.getline(file, line, module)
    except Exception:  # noqa: BLE001 - the loader of the user's module, asked for its source
        return ""


def _without_debugger(tail: types.TracebackType | None, debugger_files: set[str | None]) -> types.TracebackType | None:
    """The script's part of a traceback that ends in bdb: a rank has no stdin, so a breakpoint quits where the script stands."""
    entries = []
    stopped_in: types.FrameType | None = None
    while tail is not None:
        if tail.tb_frame.f_code.co_filename not in debugger_files:
            entries.append((tail.tb_frame, tail.tb_lasti, tail.tb_lineno))
        elif stopped_in is None and isinstance(frame := tail.tb_frame.f_locals.get("frame"), types.FrameType):
            stopped_in = frame
        tail = tail.tb_next
    # What is raised as a function returns leaves no entry for that function.
    if stopped_in is not None and stopped_in.f_code.co_filename not in _OURS and all(frame is not stopped_in for frame, *_ in entries):
        entries.append((stopped_in, stopped_in.f_lasti, stopped_in.f_lineno))
    kept: types.TracebackType | None = None
    for frame, instruction, line in reversed(entries):
        kept = types.TracebackType(kept, frame, instruction, line)
    return kept


def _bounded(text: str, most: int) -> str:
    """Both ends of a text that is too long to travel."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n[… {len(text) - most} characters left out …]\n{text[len(text) - most // 2 :]}"


def _escape(text: str) -> str:
    """Lone surrogates (from names of files that are no UTF-8) written out: no message can hold them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _full_name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - a __str__ of the user's
        return f"<no message: its __str__ raised {type(broken).__name__}>"
