"""A job's output under its cell: one display, a header and each rank's last lines, apart from each other.

`JobView` holds the lines and draws them as text; `CellDisplay` and `TerminalDisplay` show it. All of it belongs to the
kernel's main thread. Runs in the kernel.
"""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gpulayer.client.log_lines import LineAssembler, LogLine
from gpulayer.client.terminal import mark_of, print_line
from gpulayer.protocol import JobStatus, LogPage
from gpulayer.spec import node_count
from gpulayer.states import JobState
from gpulayer_jupyter.cell_places import LineTranslator
from gpulayer_jupyter.export.script import Program

OUTPUT_LIMIT_BYTES = 16 * 1024
"""Of text per job in the saved notebook; the whole is in the job's log."""
UPDATE_SECONDS = 0.1
"""Each update carries the whole text: more often than this a chatty job would flood the browser."""
TICK_SECONDS = 1.0
"""How often the header's clock goes on while nothing else is new."""
_LINE_LIMIT = 2000
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_Key = tuple[int, str]  # rank (-1: the launcher), stream


@dataclass
class _Stream:
    """The last lines of one stream of one rank, and how many there were."""

    translator: LineTranslator
    lines: deque[str] = field(default_factory=deque)
    size: int = 0
    count: int = 0

    def add(self, text: str) -> None:
        self.count += 1
        self.lines.append(text)
        self.size += len(text.encode()) + 1
        while self.size > OUTPUT_LIMIT_BYTES and len(self.lines) > 1:
            self.size -= len(self.lines.popleft().encode()) + 1


class JobView:
    """What is known of a job, as text.

    Args:
        where: which control plane, for the header.
        notes: lines above the header (what was started, what the cell asked for).
        program: to show the cells' lines in tracebacks.
    """

    def __init__(self, status: JobStatus, *, where: str, program: Program | None = None, clock: Callable[[], float] = time.time) -> None:
        self.status = status
        self.where = where
        self.notes: list[str] = []
        self._program = program
        self._clock = clock
        self._assembler = LineAssembler()
        self._streams: dict[_Key, _Stream] = {}
        self._open: list[LogLine] = []

    def add_page(self, page: LogPage) -> list[LogLine]:
        """Take what came in; returns the lines that it completed."""
        lines = list(self._add(self._assembler.feed(page.chunks)))
        self._open = self._assembler.open_lines()
        return lines

    def finish(self) -> list[LogLine]:
        """Nothing more comes: what no newline ended is a line too."""
        self._open = []
        return list(self._add(self._assembler.finish()))

    def _add(self, lines: Iterable[LogLine]) -> Iterator[LogLine]:
        for line in lines:
            key = _key(line)
            stream = self._streams.get(key)
            if stream is None:
                rank = line.rank if line.stream == "stderr" else None
                stream = self._streams[key] = _Stream(LineTranslator(self._program, rank=rank))
            text = stream.translator.translate(clean_line(line.text))
            if text is not None:
                stream.add(text)
                yield replace(line, text=text)

    def leave_out(self, rank: int, traceback: str) -> None:
        """Show this rank's traceback no more: the error below the output tells it. One that it did not print changes nothing."""
        stream = self._streams.get((rank, "stderr"))
        told = [clean_line(line) for line in traceback.splitlines()]
        if stream is None or not told:
            return
        lines = list(stream.lines)
        for start in range(len(lines) - len(told), -1, -1):
            if lines[start : start + len(told)] == told:
                stream.lines = deque(lines[:start] + lines[start + len(told) :])
                stream.count -= len(told)
                return

    # ---- text

    def header(self) -> str:
        status = self.status
        nodes, devices = node_count(status.spec), status.spec.devices
        shape = f"{nodes} node{'s' if nodes > 1 else ''} × {devices} device{'s' if devices > 1 else ''}"
        state = str(status.state)
        if not status.state.is_terminal and status.cancel_requested:
            state = "stopping"
        elif status.state is JobState.QUEUED and status.waiting_for:
            state = f"queued: {status.waiting_for}"
        elif status.state is JobState.RUNNING and not any(key[0] >= 0 for key in (*self._streams, *map(_key, self._open))):
            state = "starting ranks"  # loading a framework takes seconds in which nothing is printed
        facts = [f"job {status.job_id} {status.name}", state, f"{shape} ({status.accelerator or status.spec.accelerator})"]
        elapsed = self._elapsed()
        if elapsed is not None:
            facts.append(clock_text(elapsed))
        return " · ".join([*facts, self.where])

    def _elapsed(self) -> float | None:
        started = self.status.started_at
        if started is None:
            return None
        return max(0.0, (self.status.ended_at or self._clock()) - started)

    def text(self) -> str:
        """Header and lines, at most `OUTPUT_LIMIT_BYTES`; the same lines give the same text, however they came in."""
        failed = self.status.state is JobState.FAILED
        streams = {key: list(stream.lines) for key, stream in self._streams.items() if key[0] >= 0 or failed}
        counts = {key: self._streams[key].count for key in streams}
        for line in self._open:
            key = _key(line)
            if key[0] >= 0:
                streams.setdefault(key, []).append(clean_line(line.text))
                counts[key] = counts.get(key, 0) + 1
        parts = [*self.notes, self.header()]
        room = _shares({key: sum(len(text.encode()) + 16 for text in lines) for key, lines in streams.items()}, OUTPUT_LIMIT_BYTES)
        for key in sorted(streams, key=lambda key: (key[0] if key[0] >= 0 else sys.maxsize, key[1] == "stderr")):
            mark = mark_of(key[0] if key[0] >= 0 else None, key[1])
            kept = _last_lines(streams[key], room[key])
            skipped = counts[key] - len(kept)
            if skipped:
                parts.append(f"{mark} … {skipped} lines skipped: %gpulayer logs {self.status.job_id}{_rank_option(key[0])}")
            parts.extend(f"{mark} {text}".rstrip() for text in kept)
        return "\n".join(parts)


def clock_text(seconds: float) -> str:
    """A duration as a clock shows it: 0:42, 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def clean_line(text: str) -> str:
    """A line as it stands at the end in a terminal: after its last carriage return, without control sequences."""
    last = _SEQUENCE.sub("", next((part for part in reversed(text.split("\r")) if part), ""))
    return last if len(last) <= _LINE_LIMIT else f"{last[:_LINE_LIMIT]}…"


def _rank_option(rank: int) -> str:
    return f" --rank {rank}" if rank >= 0 else ""


def _key(line: LogLine) -> _Key:
    return (-1 if line.rank is None else line.rank, line.stream)


def _shares(sizes: dict[_Key, int], room: int) -> dict[_Key, int]:
    """Divide the room: who needs less than an equal share leaves the rest to the others."""
    shares: dict[_Key, int] = {}
    left = room
    for position, (key, size) in enumerate(sorted(sizes.items(), key=lambda entry: (entry[1], entry[0]))):
        shares[key] = min(size, left // (len(sizes) - position))
        left -= shares[key]
    return shares


def _last_lines(lines: list[str], room: int) -> list[str]:
    kept: list[str] = []
    for text in reversed(lines):
        room -= len(text.encode()) + 16
        if room < 0:
            break
        kept.append(text)
    return kept[::-1]


# ---- where it is shown


class Display(Protocol):
    """Where a job's output goes; called in the main thread only."""

    def show(self, view: JobView, lines: list[LogLine]) -> None:
        """Something has changed; `lines` are those that came since the last call."""

    def pending_seconds(self) -> float | None:
        """When `show` wants to be called again although nothing changes; None: not at all."""

    def close(self, view: JobView) -> None:
        """The final state."""


class CellDisplay:
    """One display below the cell, rewritten in place."""

    def __init__(self, display_id: str, *, clock: Callable[[], float] = time.monotonic, publish: Any = None) -> None:
        self._id = display_id
        self._clock = clock
        self._publish = publish or _publish
        self._shown: str | None = None
        self._last = 0.0
        self._stale = False
        self._ticks = False

    def show(self, view: JobView, lines: list[LogLine]) -> None:  # noqa: ARG002 - the view has them
        self._ticks = view.status.started_at is not None and view.status.ended_at is None
        if self._shown is not None and self._clock() - self._last < UPDATE_SECONDS:
            self._stale = True
            return
        self._draw(view)

    def pending_seconds(self) -> float | None:
        if not self._stale:
            return TICK_SECONDS if self._ticks else None
        return max(0.0, self._last + UPDATE_SECONDS - self._clock())

    def close(self, view: JobView) -> None:
        self._draw(view)

    def _draw(self, view: JobView) -> None:
        self._stale = False
        text = view.text()
        if text == self._shown:
            return
        self._publish({"text/plain": text}, self._id, update=self._shown is not None)
        self._shown, self._last = text, self._clock()


def _publish(bundle: dict[str, str], display_id: str, *, update: bool) -> None:
    from IPython.display import display, update_display

    if update:
        update_display(bundle, display_id=display_id, raw=True)
    else:
        display(bundle, display_id=display_id, raw=True)


class TerminalDisplay:
    """Lines as they come, for IPython without a kernel."""

    def __init__(self) -> None:
        self._header = ""

    def show(self, view: JobView, lines: list[LogLine]) -> None:
        # Elapsed time alone is no news worth a line.
        stage = f"{view.status.state} {view.status.waiting_for}"
        if stage != self._header:
            self._header = stage
            self._write([*view.notes, view.header()])
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


def display_for(shell: Any, job_id: str) -> Display:
    """Below the cell where a kernel runs, else the terminal."""
    return CellDisplay(f"gpulayer-{job_id}") if getattr(shell, "kernel", None) is not None else TerminalDisplay()
