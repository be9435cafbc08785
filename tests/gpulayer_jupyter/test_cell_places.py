"""A failure's frames in the notebook's cells and lines: in what is said, and as data."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from gpulayer_jupyter.cell_places import CellPlace, place_in_cells, program_of_source, tell_in_cells
from gpulayer_jupyter.export.pieces import Piece
from gpulayer_jupyter.export.script import LinePiece, Program
from support.client import job_status
from support.notebook import export_after

from gpulayer.client.failures import job_failed
from gpulayer.protocol import Failure, Frame, JobSource, JobStatus, RankError, RankOutcome, SourceFile, TaskStatus, ThreadStack, WorkerId
from gpulayer.states import AttemptState, JobState

SOURCE = "/h/workspaces/b1/j1.0-1/source"
TORCH = Frame(file="/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line=9, function="all_reduce")
JOINING = Frame(file=f"{SOURCE}/main.py", line=9, function="<module>")
IN_CELL = Frame(file=f"{SOURCE}/cell.py", line=3, function="<module>")
IN_HISTORY = Frame(file=f"{SOURCE}/main.py", line=4, function="g")
PROGRAM = Program(
    {"main.py": "", "cell.py": ""},
    (LinePiece("main.py", 3, 2, 1, 1), LinePiece("cell.py", 1, 3, 2, 2)),
    (4, 7),
    (Piece(4, 2, "f()\n", ast.parse("f()").body[0], 1),),
)
TRACEBACK = f'  File "{SOURCE}/cell.py", line 3, in <module>\n  File "{SOURCE}/main.py", line 4, in g\nValueError: x\n'


def _failed_job() -> JobStatus:
    error = RankError(type="ValueError", message="x", traceback=TRACEBACK, frames=(JOINING, IN_CELL, IN_HISTORY))
    waiting = ThreadStack(is_main=True, frames=(JOINING, IN_CELL, TORCH))
    ranks = (
        RankOutcome(rank=0, local_rank=0, exit_code=1, error=error),
        *(RankOutcome(rank=rank, local_rank=rank, collateral=True, stacks=(waiting,)) for rank in (1, 2)),
    )
    task = TaskStatus(node=0, state=AttemptState.FAILED, attempt=1, worker_id=WorkerId("w"), worker="w", host="h", ranks=ranks)
    return job_status(JobState.FAILED, failure=Failure(reason="rank", message="", rank=0, exit_code=1, error=error), tasks=(task,))


@pytest.mark.parametrize(
    ("file", "line", "place"),
    [
        (f"{SOURCE}/main.py", 3, CellPlace(4, 1)),
        (f"{SOURCE}/cell.py", 3, CellPlace(7, 4)),
        (f"{SOURCE}/cell.py", 4, None),
        (f"{SOURCE}/pkg/main.py", 3, None),
        ("main.py", 3, None),
    ],
)
def test_a_line_of_the_program_is_a_line_of_a_cell(file: str, line: int, place: CellPlace | None) -> None:
    assert place_in_cells(file, line, PROGRAM) == place
    assert place_in_cells(file, line, None) is None


def test_another_kernel_finds_the_cells_in_the_source() -> None:
    export = export_after(["def f():\n    return 1"], "x = f()\nprint(x)")
    files = {path: content for path, content in export.bundle.files.items() if isinstance(content, bytes)}
    source = JobSource(files=tuple(SourceFile(path=path, size_bytes=len(text), text=text.decode()) for path, text in files.items()))
    found = program_of_source(source, export.program.cells)
    assert found is not None
    assert (found.lines, found.cells, found.files.keys()) == (export.program.lines, export.program.cells, export.program.files.keys())


@pytest.mark.parametrize("manifest", [None, "", "[]", '{"lines": ["cell.py:1-2 is cell 3 from line 1", "x"]}', '{"lines": 3}'])
def test_a_source_without_cells_has_none(manifest: str | None) -> None:
    file = SourceFile(path="manifest.json", size_bytes=1, text=manifest)
    assert program_of_source(JobSource(files=(file,)), (4, 7)) is None


def test_what_is_said_names_cells() -> None:
    status = _failed_job()
    failed = job_failed(status)
    assert "main.py:4 in g" in str(failed)
    tell_in_cells(failed, status, PROGRAM)
    assert failed.message.splitlines()[1:] == [
        "The other ranks were stopped: 1, 2.",
        "Ranks 1, 2 were in all_reduce, Cell [7], line 4.",
    ]
    assert failed.two_lines().splitlines()[3] == "ValueError: x (Cell [4], line 2 in g)"
    traceback = "  Cell [7], line 4, in <module>\n  Cell [4], line 2, in g\nValueError: x"
    assert failed.details["traceback"] == traceback
    assert traceback in failed.__notes__[0]


def _places(frames: list[dict[str, Any]]) -> list[tuple[int, int] | None]:
    return [(frame["cell"], frame["cell_line"]) if "cell" in frame else None for frame in frames]


def test_frames_carry_their_cells_as_data() -> None:
    status = _failed_job()
    failed = job_failed(status)
    tell_in_cells(failed, status, PROGRAM)
    assert _places(failed.details["failure"]["error"]["frames"]) == [None, (7, 4), (4, 2)]
    guilty, *others = failed.details["ranks"]
    assert _places(guilty["error"]["frames"]) == [None, (7, 4), (4, 2)]
    for other in others:
        assert _places(other["stacks"][0]["frames"]) == [None, (7, 4), None]
        assert other["stacks"][0]["frames"][1]["file"] == f"{SOURCE}/cell.py"


def test_without_the_program_files_are_told_within_the_source() -> None:
    status = _failed_job()
    failed = job_failed(status)
    message = failed.message
    tell_in_cells(failed, status, None)
    assert failed.message == message
    assert "Ranks 1, 2 were in all_reduce, cell.py:3." in message
    assert failed.details["traceback"].splitlines()[0] == '  File "cell.py", line 3, in <module>'


def test_a_job_without_a_failure_is_told_too() -> None:
    status = job_status(JobState.CANCELLED)
    failed = job_failed(status)
    tell_in_cells(failed, status, PROGRAM)
    assert failed.message.endswith("was cancelled.")
