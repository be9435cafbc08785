"""A job's output in IPython without a kernel: plain lines where nothing can be redrawn, a live part below them on a terminal."""

from __future__ import annotations

import io

import pytest
from gpulayer_jupyter.output.terminal_display import LiveTerminalDisplay, TerminalDisplay, terminal_place
from rich.console import Console
from support.job_views import page, status_of, view_of

from gpulayer.states import JobState
from gpulayer.terminal_text import TerminalText


def test_lines_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    display = TerminalDisplay()
    view = view_of()
    view.notes.append("started 2 local workers")
    display.show(view, [])
    header = view.header()
    assert "· starting ranks ·" in header
    display.show(view, view.add_page(page(1, "b\n")))
    display.show(view, view.add_page(page(None, "launcher\n")))
    display.show(view, view.add_page(page(0, "a\n", "stderr")))
    assert capsys.readouterr().out.splitlines() == ["started 2 local workers", header, "[rank 1] b", "[rank 0 err] a"]


def test_a_pipe_gets_plain_lines() -> None:
    assert isinstance(terminal_place(), TerminalDisplay)


def test_a_terminal_keeps_the_lines_and_in_the_end_one_headline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")  # on a dumb one nothing is redrawn
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=200, highlight=False, markup=False, emoji=False)
    display = LiveTerminalDisplay(console)
    view = view_of()
    display.show(view, [])
    assert display.pending_seconds() == 0.25
    display.show(view, view.add_page(page(0, "[red]first[/red] :smile:\n")))
    display.show(view, view.add_page(page(1, "\r 50%")))
    assert "[rank 1]  50%" in written.getvalue()
    view.status = status_of(JobState.SUCCEEDED, ended_at=12.0)
    display.show(view, view.finish())
    display.close(view)
    assert display.pending_seconds() is None
    terminal = TerminalText()
    shown = [*terminal.feed(written.getvalue()), *terminal.finish()]
    lines = [line for line in shown if line.strip()]
    assert lines[0] == "[rank 0] [red]first[/red] :smile:"  # text of ranks is no markup
    assert lines[1] == "[rank 1]  50%"
    assert lines[2].startswith("✔ job j1 digits · succeeded")
    assert len(lines) == 3
