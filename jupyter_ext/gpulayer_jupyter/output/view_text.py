"""What is known of a job, as bounded text: a header and each rank's last lines, apart from each other.

Nothing here knows where it is shown. Runs in the kernel, in the thread that follows the job.
"""

from __future__ import annotations

import codecs
import copy
import json
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from gpulayer.client.environment_text import other_versions
from gpulayer.client.log_lines import LogLine
from gpulayer.client.status_text import shape_text, state_text, time_text, ways_out
from gpulayer.client.terminal import mark_of
from gpulayer.protocol import JobStatus, LogChunk, LogPage
from gpulayer.states import JobState
from gpulayer.terminal_text import TerminalText
from gpulayer_jupyter.cell_places import LineTranslator
from gpulayer_jupyter.export.script import Program

TEXT_LIMIT_BYTES = 9 * 1024
"""Of lines in a saved notebook's text; the whole is in the job's log. With the rest of its output a job adds less than 20 KB."""
_KEPT_BYTES = 16 * 1024
"""Of lines of one stream that are remembered: as much as may ever be shown."""
_LINE_LIMIT = 2000
_LINE_COST_BYTES = 12
"""What a notebook's file adds to a line: its indentation, quotation marks, `\\n` and comma."""
_SKIPPED_BYTES = 96
"""Room for the line that says how many were skipped."""
_STREAM_BYTES = 200
"""With less than this, a stream's lines are not worth their marks."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_Key = tuple[int, str]  # rank (-1: the launcher), stream


@dataclass
class _Stream:
    """One stream of one rank: its last lines as a terminal shows them, how many there were, and the lines as they come."""

    translator: LineTranslator
    coming: LineTranslator
    attempt: int
    terminal: TerminalText = field(default_factory=TerminalText)
    decoder: codecs.IncrementalDecoder = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))
    lines: deque[str] = field(default_factory=deque)
    size: int = 0
    count: int = 0
    drawn: list[str] | None = None  # the open lines as they stand
    rest: str = ""  # of the line that no newline has ended: its end, for a bar may be redrawn in it for days
    last: LogLine | None = None

    def feed(self, chunk: LogChunk) -> list[LogLine]:
        """Returns the lines that this chunk completes."""
        lines = []
        if chunk.attempt != self.attempt:
            lines = self.finish()
            self.attempt = chunk.attempt
        text = self.decoder.decode(chunk.data)
        self._draw(text)
        *complete, rest = f"{self.rest}{text}".split("\n")
        self.rest = rest[-_KEPT_BYTES:]
        self.last = LogLine(chunk.rank, chunk.stream, chunk.first_line + len(complete) + 1, chunk.time, "")
        for number, line in enumerate(complete, chunk.first_line + 1):
            lines += self._come(replace(self.last, number=number), line)
        return lines

    def finish(self) -> list[LogLine]:
        """Nothing more comes of this attempt: what no newline ended is a line too."""
        text = self.decoder.decode(b"", final=True)
        self._draw(text)
        for line in self.terminal.finish():
            self._add(line)
        self.decoder.reset()
        rest, self.rest = f"{self.rest}{text}", ""
        return self._come(self.last, rest) if rest and self.last is not None else []

    def unfinished(self) -> str:
        """The line that is under way, as it stands."""
        return _cut((self.terminal.open_lines() or [""])[-1])

    def open_lines(self) -> list[str]:
        """The lines that may still change, translated as if they were final."""
        if self.drawn is None:
            translator = copy.copy(self.translator)
            lines = self.terminal.open_lines()
            if lines and not lines[-1]:
                del lines[-1]  # where the cursor stands after a newline
            self.drawn = [_cut(text) for line in lines if (text := translator.translate(line)) is not None]
        return self.drawn

    def _draw(self, text: str) -> None:
        self.drawn = None
        for line in self.terminal.feed(text):
            self._add(line)

    def _come(self, like: LogLine, line: str) -> list[LogLine]:
        text = self.coming.translate(clean_line(line))
        return [] if text is None else [replace(like, text=text)]

    def _add(self, line: str) -> None:
        text = self.translator.translate(line)
        if text is None:
            return
        text = _cut(text)
        self.count += 1
        self.lines.append(text)
        self.size += len(text.encode("utf-8", "replace")) + 1
        while self.size > _KEPT_BYTES and len(self.lines) > 1:
            self.size -= len(self.lines.popleft().encode("utf-8", "replace")) + 1


class JobView:
    """What is known of a job, as text.

    Args:
        where: which control plane, for the header.
        program: to show the cells' lines in tracebacks.

    Attributes:
        notes: lines above the header (what was started, what the cell asked for).
        received_bytes: of output, so far.
    """

    def __init__(self, status: JobStatus, *, where: str, program: Program | None = None, clock: Callable[[], float] = time.time) -> None:
        self.status = status
        self.where = where
        self.notes: list[str] = []
        self.received_bytes = 0
        self._program = program
        self._clock = clock
        self._streams: dict[_Key, _Stream] = {}

    def add_page(self, page: LogPage) -> list[LogLine]:
        """Take what came in; returns the lines that it completed."""
        lines = []
        for chunk in page.chunks:
            self.received_bytes += len(chunk.data)
            lines += self._stream_of(chunk).feed(chunk)
        return lines

    def finish(self) -> list[LogLine]:
        """Nothing more comes: what no newline ended is a line too."""
        return [line for stream in self._streams.values() for line in stream.finish()]

    def under_way(self) -> dict[int, str]:
        """Each rank's unfinished line as it stands."""
        return {rank: text for (rank, _), stream in self._streams.items() if rank >= 0 and (text := stream.unfinished())}

    def _stream_of(self, chunk: LogChunk) -> _Stream:
        key = (-1 if chunk.rank is None else chunk.rank, chunk.stream)
        stream = self._streams.get(key)
        if stream is None:
            translators = [LineTranslator(self._program, rank=chunk.rank if chunk.stream == "stderr" else None) for _ in range(2)]
            stream = self._streams[key] = _Stream(translators[0], translators[1], chunk.attempt)
        return stream

    def leave_out(self, rank: int, traceback: str) -> None:
        """Show this rank's traceback no more: the error below the output tells it. One that it did not print changes nothing."""
        stream = self._streams.get((rank, "stderr"))
        told = [_cut(line.rstrip()) for line in traceback.splitlines()]
        if stream is None or not told:
            return
        lines = list(stream.lines)
        for start in range(len(lines) - len(told), -1, -1):
            if lines[start : start + len(told)] == told:
                stream.lines = deque(lines[:start] + lines[start + len(told) :])
                stream.count -= len(told)
                return

    # ---- text

    def state_words(self) -> str:
        """The job's state, and what it waits for."""
        state = state_text(self.status)
        if state == JobState.RUNNING and not any(key[0] >= 0 for key in self._streams):
            return "starting ranks"  # loading a framework takes seconds in which nothing is printed
        return state

    def header(self) -> str:
        """The job in one line: what, in which state, how much, how long, where."""
        status = self.status
        facts = [f"job {status.job_id} {status.name}", self.state_words(), shape_text(status)]
        if (elapsed := time_text(status, self._clock())) is not None:
            facts.append(elapsed)
        return " · ".join([*facts, self.where])

    def head(self) -> list[str]:
        """What stands above the lines: notes, the header, what would let a waiting job run, and versions that an ended one found."""
        told = other_versions(self.status) if self.status.state.is_terminal else []
        return [*self.notes, self.header(), *(f"  {line}" for line in (*ways_out(self.status), *told))]

    def lines(self, limit_bytes: int = TEXT_LIMIT_BYTES, written: Callable[[str], str] = str) -> list[str]:
        """Each rank's last lines with their marks, and how many were skipped; the same lines give the same text, however they came in.

        `written`: what of a line stands in the notebook's file, where that is not the line itself.
        """
        known = [key for key in self._streams if self._is_shown(key)]
        shown = self._first_streams(known, limit_bytes // _STREAM_BYTES)
        lines = {key: [*self._streams[key].lines, *self._streams[key].open_lines()] for key in shown}
        marks = {key: mark_of(key[0] if key[0] >= 0 else None, key[1]) for key in shown}

        def cost(key: _Key, text: str) -> int:
            return _cost(marks[key], written(text))

        def size(key: _Key) -> int:
            # Of what is too much anyway the last lines are all that is looked at.
            return limit_bytes if self._streams[key].size > limit_bytes else sum(cost(key, text) for text in lines[key])

        room = _shares({key: size(key) for key in shown}, limit_bytes - len(shown) * _SKIPPED_BYTES)
        parts = []
        for key in shown:
            count = _last_that_fit((cost(key, text) for text in reversed(lines[key])), room[key])
            kept = lines[key][len(lines[key]) - count :]
            skipped = self._streams[key].count + len(lines[key]) - len(self._streams[key].lines) - len(kept)
            if skipped:
                parts.append(f"{marks[key]} … {skipped} lines skipped: %gpulayer logs {self.status.job_id}{_rank_option(key[0])}")
            parts.extend(f"{marks[key]} {text}".rstrip() for text in kept)
        if len(shown) < len(known):
            ranks = len({key[0] for key in known} - {key[0] for key in shown})
            parts.append(f"… {ranks or 1} more rank{'s' if ranks > 1 else ''}: %gpulayer logs {self.status.job_id}")
        return parts

    def _is_shown(self, key: _Key) -> bool:
        """What the launcher itself printed is of interest where the job failed."""
        return key[0] >= 0 or self.status.state is JobState.FAILED

    def _first_streams(self, streams: Iterable[_Key], most: int) -> list[_Key]:
        """In the order of ranks, the launcher last; where they are too many, the rank that failed first before all."""
        ordered = sorted(streams, key=lambda key: (key[0] if key[0] >= 0 else sys.maxsize, key[1] == "stderr"))
        if len(ordered) <= most:
            return ordered
        failure = self.status.failure
        guilty = [key for key in ordered if failure is not None and key[0] == failure.rank]
        kept = {*guilty, *[key for key in ordered if key not in guilty][: most - len(guilty)]}
        return [key for key in ordered if key in kept]

    def text(self, limit_bytes: int = TEXT_LIMIT_BYTES) -> str:
        """Head and lines."""
        return "\n".join([*self.head(), *self.lines(limit_bytes)])


def clean_line(text: str) -> str:
    """One line by itself, as it comes and as a terminal leaves it."""
    if _CONTROL.search(text):
        terminal = TerminalText()
        text = " ".join(line for line in [*terminal.feed(text), *terminal.finish()] if line)
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _LINE_LIMIT else f"{text[:_LINE_LIMIT]}…"


def _rank_option(rank: int) -> str:
    return f" --rank {rank}" if rank >= 0 else ""


def _cost(mark: str, text: str) -> int:
    """What a line costs in a notebook's file, where it is JSON."""
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")) + len(mark) + _LINE_COST_BYTES


def _shares(sizes: dict[_Key, int], room: int) -> dict[_Key, int]:
    """Divide the room: who needs less than an equal share leaves the rest to the others."""
    shares: dict[_Key, int] = {}
    left = room
    for position, (key, size) in enumerate(sorted(sizes.items(), key=lambda entry: (entry[1], entry[0]))):
        shares[key] = min(size, left // (len(sizes) - position))
        left -= shares[key]
    return shares


def _last_that_fit(costs: Iterable[int], room: int) -> int:
    """How many of these, the last line's first."""
    count = 0
    for cost in costs:
        room -= cost
        if room < 0:
            break
        count += 1
    return count
