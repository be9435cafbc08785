"""Where a job's frames lie in the notebook: a program's lines as cells and lines, in the fields of a failure and in its text.

The fields are those of `protocol.Frame`; the text is what ranks print. Runs in the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gpulayer.client.failures import job_failed
from gpulayer.client.frame_places import file_and_line
from gpulayer.errors import JobFailed
from gpulayer.protocol import Frame, JobSource, JobStatus
from gpulayer_jupyter.export.script import LinePiece, Program

_FRAME = re.compile(r'^(?P<indent>\s*)File "(?P<path>[^"]+)", line (?P<line>\d+)(?P<rest>.*)$')
_LINES = re.compile(r"(?P<file>.+):(?P<first>\d{1,9})-(?P<last>\d{1,9}) is cell (?P<cell>\d{1,9}) from line (?P<line>\d{1,9})")
_WORKSPACE = re.compile(r'(?<=")[^"\n]*/source/(?=[^"\n]+")')


class _Manifest(msgspec.Struct):
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CellPlace:
    """A line of a cell: the cell's execution count, and the line counted from 1."""

    cell: int
    line: int

    def __str__(self) -> str:
        return f"Cell [{self.cell}], line {self.line}"


def program_of_source(source: JobSource, cells: Sequence[int]) -> Program | None:
    """What is known of a program from its bundle: which lines are of which cell; None where its manifest says nothing of it.

    Args:
        source: of the job.
        cells: `JobSpec.cells`.
    """
    text = next((file.text for file in source.files if file.path == "manifest.json"), None)
    try:
        manifest = msgspec.json.decode(text or "", type=_Manifest)
    except msgspec.DecodeError:
        return None
    found = [entry for line in manifest.lines if (entry := _LINES.fullmatch(line)) and 1 <= int(entry["cell"]) <= len(cells)]
    pieces = tuple(
        LinePiece(entry["file"], int(entry["first"]), int(entry["last"]) - int(entry["first"]) + 1, int(entry["cell"]), int(entry["line"]))
        for entry in found
    )
    return Program({piece.file: "" for piece in pieces}, pieces, tuple(cells), ()) if pieces else None


def place_in_cells(file: str, line: int, program: Program | None) -> CellPlace | None:
    """Where a line of the program's own files comes from; None for any other line."""
    folder, _, name = file.rpartition("/")
    if program is None or not folder.endswith("/source"):
        return None
    for piece in program.lines:
        if piece.file == name and piece.first <= line < piece.first + piece.count:
            return CellPlace(program.cells[piece.cell - 1], piece.line + line - piece.first)
    return None


def tell_in_cells(failed: JobFailed, status: JobStatus, program: Program | None) -> None:
    """Say in the notebook's cells and lines what the error tells: its message, its frames and the guilty rank's traceback.

    In `details`, each frame that lies in a cell gets a `cell` and a `cell_line`; its file and line stay what they are.
    """

    def place(frame: Frame) -> str:
        return str(place_in_cells(frame.file, frame.line, program) or file_and_line(frame))

    drawn = job_failed(status, place)
    failed.message, failed.fix, failed.args = drawn.message, drawn.fix, drawn.args
    for fields in _frames_in(failed.details):
        frame = msgspec.convert(fields, Frame)
        if (found := place_in_cells(frame.file, frame.line, program)) is not None:
            fields.update(cell=found.cell, cell_line=found.line)
    if told := failed.details.get("traceback"):
        in_cells = failed.details["traceback"] = cell_traceback(told, program)
        failed.__notes__ = [note.replace(told, in_cells) for note in drawn.__notes__]


def _frames_in(details: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The frames of the error and of all ranks, as plain fields."""
    errors = [holder.get("error") for holder in (details.get("failure") or {}, *details.get("ranks", ()))]
    stacks = [stack for rank in details.get("ranks", ()) for stack in rank["stacks"]]
    for holder in (*filter(None, errors), *stacks):
        yield from holder["frames"]


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
