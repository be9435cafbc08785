"""A job's output in IPython without a kernel: lines as they come, and on a terminal what is under way below them, drawn by rich.

Finished lines scroll above; the job's state, its time and each rank's unfinished line stay below and are redrawn in place.
Runs in the main thread.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gpulayer.client.log_lines import LogLine
from gpulayer.client.terminal import mark_of, print_line
from gpulayer_jupyter.output.view_text import JobView

if TYPE_CHECKING:
    from rich.console import RenderableType

TICK_SECONDS = 0.25
RANKS_SHOWN = 8
"""Of so many ranks the unfinished line stands below the lines."""
_MARKS = {"queued": "○", "running": "●", "succeeded": "✔", "failed": "✘", "cancelled": "■"}
_COLOURS = {"queued": "yellow", "running": "blue", "succeeded": "green", "failed": "red", "cancelled": "magenta"}


class TerminalDisplay:
    """Lines as they come, for where nothing can be redrawn."""

    def __init__(self) -> None:
        self._header = ""

    def show(self, view: JobView, lines: list[LogLine]) -> None:
        # Elapsed time alone is no news worth a line.
        stage = f"{view.status.state} {view.status.waiting_for}"
        if stage != self._header:
            self._header = stage
            self._write(view.head())
            view.notes.clear()
        for line in lines:
            if line.rank is not None:
                print_line(line, sys.stdout)

    def pending_seconds(self) -> float | None:
        return None

    def close(self, view: JobView) -> None:
        pass

    @staticmethod
    def _write(lines: list[str]) -> None:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


class LiveTerminalDisplay:
    """Lines scroll above what is redrawn in place.

    Args:
        console: the `rich.console.Console` to draw on; of tests.
    """

    def __init__(self, console: Any = None) -> None:
        from rich.console import Console
        from rich.live import Live

        # Ranks' text is text: no markup, no emoji codes and no highlighting is read out of it.
        self._console = console or Console(highlight=False, markup=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._ticks = False
        self._begun = False

    def show(self, view: JobView, lines: list[LogLine]) -> None:
        self._ticks = not view.status.state.is_terminal
        if not self._begun:
            self._begun = True
            for note in view.notes:
                self._console.print(note, style="dim", soft_wrap=True)
            view.notes.clear()
            self._live.start()
        for line in lines:
            if line.rank is not None:
                self._print(line)
        self._live.update(self._drawn(view), refresh=True)

    def pending_seconds(self) -> float | None:
        return TICK_SECONDS if self._ticks else None

    def close(self, view: JobView) -> None:
        self._live.stop()
        self._console.print(self._headline(view), soft_wrap=True)

    def _print(self, line: LogLine) -> None:
        from rich.text import Text

        mark = mark_of(line.rank, line.stream)
        self._console.print(Text.assemble((mark, "red" if line.stream == "stderr" else "cyan"), " ", line.text), soft_wrap=True)

    def _drawn(self, view: JobView) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        rows: list[RenderableType] = [self._headline(view)]
        rows += [Text(line, style="dim") for line in view.head()[1:]]
        under_way = view.under_way()
        width = max(20, self._console.width)
        for rank in sorted(under_way)[:RANKS_SHOWN]:
            row = f"  {mark_of(rank, 'stdout')} {under_way[rank]}"[:width]
            rows.append(Text(row, style="dim", no_wrap=True, overflow="ellipsis"))
        return Group(*rows)

    @staticmethod
    def _headline(view: JobView) -> Any:
        from rich.text import Text

        state = str(view.status.state)
        return Text.assemble((_MARKS.get(state, "·"), _COLOURS.get(state, "")), " ", (view.header(), "bold"))


def terminal_place() -> TerminalDisplay | LiveTerminalDisplay:
    """Redrawn in place on a terminal, plain lines elsewhere (a pipe, a dumb terminal)."""
    from rich.console import Console

    return LiveTerminalDisplay() if sys.stdout.isatty() and not Console().is_dumb_terminal else TerminalDisplay()
