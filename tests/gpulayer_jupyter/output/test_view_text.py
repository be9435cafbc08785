"""A job's output as text: each rank apart, bounded, the same however the lines came in."""

from __future__ import annotations

import random

import pytest
from gpulayer_jupyter.export.pieces import Piece
from gpulayer_jupyter.export.script import LinePiece, Program
from gpulayer_jupyter.output.view_text import TEXT_LIMIT_BYTES, JobView, clean_line
from support.job_views import page, status_of, view_of

from gpulayer.states import JobState


def test_ranks_stand_apart_and_in_order() -> None:
    view = view_of()
    for part in (page(1, "b1\n"), page(0, "a1\n"), page(0, "oops\n", "stderr"), page(1, "b2\nb3"), page(None, "torchrun says\n")):
        view.add_page(part)
    assert view.text().splitlines() == [
        "job j1 digits · running · 2 nodes × 2 devices (cpu) · 0:02 · here",
        "[rank 0] a1",
        "[rank 0 err] oops",
        "[rank 1] b1",
        "[rank 1] b2",
        "[rank 1] b3",
    ]


def test_launcher_speaks_only_when_the_job_failed() -> None:
    view = view_of()
    view.add_page(page(None, "torchrun says\n"))
    view.finish()
    assert "torchrun" not in view.text()
    view.status = status_of(JobState.FAILED, ended_at=11.0)
    assert view.text().splitlines()[-1] == "[launcher] torchrun says"


def test_the_same_lines_give_the_same_text() -> None:
    pages = [(rank, f"line {number} of {rank}\n", number) for rank in range(4) for number in range(20)]
    texts = set()
    for seed in range(5):
        queues = {rank: [page for page in pages if page[0] == rank] for rank in range(4)}
        order = random.Random(seed)
        view = view_of()
        while any(queues.values()):
            rank, text, number = queues[order.choice([rank for rank in queues if queues[rank]])].pop(0)
            view.add_page(page(rank, text, first_line=number))
        view.finish()
        texts.add(view.text())
    assert len(texts) == 1
    assert texts.pop().count("[rank 3] line") == 20


def test_the_same_line_of_each_rank_is_kept_once_for_each() -> None:
    view = view_of()
    for rank in range(4):
        view.add_page(page(rank, "same\n"))
    assert [line for line in view.text().splitlines() if "same" in line] == [f"[rank {rank}] same" for rank in range(4)]


def test_text_is_bounded_and_says_what_it_skips() -> None:
    view = view_of()
    for number in range(20_000):
        view.add_page(page(0, f"line {number}\n", first_line=number))
    view.add_page(page(1, "quiet\n"))
    text = view.text()
    assert len(text.encode()) < TEXT_LIMIT_BYTES + 1000
    assert "lines skipped: %gpulayer logs j1 --rank 0" in text
    assert text.endswith("[rank 0] line 19999\n[rank 1] quiet")


def test_one_line_without_end() -> None:
    view = view_of()
    for number in range(50):
        view.add_page(page(0, "x" * 100_000, offset=number * 100_000))
    assert len(view.text()) < TEXT_LIMIT_BYTES


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("10%\r50%\r100%", "100%"),
        ("done\r", "done"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text\x07", "text"),
        ("a\x1b[Ab\tc", "ab      c"),
        ("over\rO", "Over"),
        ("<script>", "<script>"),
        ("y" * 5000, "y" * 2000 + "…"),
    ],
)
def test_line_as_a_terminal_leaves_it(text: str, shown: str) -> None:
    assert clean_line(text) == shown


def test_lines_come_numbered_and_what_no_newline_ended_comes_last() -> None:
    view = view_of()
    lines = view.add_page(page(0, "a\r\nb\nc", first_line=4))
    assert [(line.rank, line.stream, line.number, line.text) for line in lines] == [(0, "stdout", 5, "a"), (0, "stdout", 6, "b")]
    assert view.under_way() == {0: "c"}
    assert [(line.number, line.text) for line in view.finish()] == [(7, "c")]
    assert (view.finish(), view.under_way()) == ([], {})


def test_a_bar_that_is_redrawn_for_days_costs_no_more_than_its_last_state() -> None:
    view = view_of()
    for number in range(20_000):
        assert view.add_page(page(0, f"\r{number:6} of many")) == []
    assert view.under_way() == {0: " 19999 of many"}
    [stream] = view._streams.values()
    assert len(stream.rest) <= 16 * 1024
    assert [line.text for line in view.add_page(page(0, "\rdone\n"))] == ["done99 of many"]


def test_waiting_and_stopping_are_said() -> None:
    assert "queued: no worker yet" in view_of(state=JobState.QUEUED, started_at=None, waiting_for="no worker yet").header()
    assert "· stopping ·" in view_of(cancel_requested=True).header()


def test_printed_traceback_names_cells() -> None:
    import ast

    piece = Piece(4, 2, "f()\n", ast.parse("f()").body[0], 1)
    program = Program({"main.py": "", "cell.py": ""}, (LinePiece("cell.py", 1, 3, 1, 2),), (4,), (piece,))
    view = JobView(status_of(), where="here", program=program)
    said = (
        'Traceback (most recent call last):\n  File "/w/1/source/main.py", line 9, in <module>\n    exec(compile(\n'
        '  File "/w/1/source/cell.py", line 3, in g\n    f()\n  File "/w/1/source/helpers/data.py", line 1, in f\nValueError: x\n'
    )
    view.add_page(page(0, said, "stderr"))
    assert [line.removeprefix("[rank 0 err]").strip() for line in view.text().splitlines()[1:]] == [
        "Traceback (most recent call last):",
        "Cell [4], line 4, in g",
        "f()",
        'File "helpers/data.py", line 1, in f',
        "ValueError: x",
    ]


def test_starting_ranks_until_one_says_a_word() -> None:
    view = view_of()
    view.add_page(page(None, "launcher\n"))
    assert "· starting ranks ·" in view.header()
    view.add_page(page(1, "no newline"))
    assert "· running ·" in view.header()


def test_torchs_mark_on_a_traceback_is_not_doubled() -> None:
    view = view_of()
    view.add_page(
        page(1, '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/w/1/source/a.py", line 1\n[rank0]: x\n', "stderr")
    )
    view.add_page(page(1, "[rank1]: printed\n"))
    assert view.text().splitlines()[1:] == [
        "[rank 1] [rank1]: printed",
        "[rank 1 err] Traceback (most recent call last):",
        '[rank 1 err]   File "a.py", line 1',
        "[rank 1 err] [rank0]: x",
    ]


def test_a_traceback_that_the_error_tells_is_left_out() -> None:
    view = view_of()
    view.add_page(page(1, "[rank1]: Traceback:\n[rank1]: ValueError: x\nafter\n", "stderr"))
    view.add_page(page(0, "Traceback:\nValueError: x\n", "stderr"))
    view.finish()
    view.leave_out(1, "Traceback:\nKeyError")
    view.leave_out(2, "Traceback:\nValueError: x")
    assert len(view.text().splitlines()) == 6
    view.leave_out(1, "Traceback:\nValueError: x\n")
    assert view.text().splitlines()[1:] == ["[rank 0 err] Traceback:", "[rank 0 err] ValueError: x", "[rank 1 err] after"]
