"""From stored log chunks to lines: chunks may cut characters and lines anywhere."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpulayer.protocol import LogChunk, Stream

_Key = tuple[int, int, int | None, Stream]  # attempt, node, rank, stream


@dataclass(frozen=True, slots=True)
class LogLine:
    r"""One line of one stream of one rank, without its newline.

    Args:
        rank: global rank; None for what the launcher itself printed.
        stream: "stdout" or "stderr".
        number: from 1, within this stream of this rank and attempt.
        time: UTC seconds; when the line's last piece was read.
        text: as it was printed; `\r` is kept, bytes that are no UTF-8 become U+FFFD.
    """

    rank: int | None
    stream: Stream
    number: int
    time: float
    text: str


@dataclass(slots=True)
class _OpenLine:
    decoder: codecs.IncrementalDecoder
    number: int
    time: float = 0.0
    pieces: list[str] = field(default_factory=list)


class LineAssembler:
    """Joins the chunks of a job into lines; only a newline ends a line."""

    def __init__(self) -> None:
        self._open: dict[_Key, _OpenLine] = {}

    def feed(self, chunks: Iterable[LogChunk]) -> list[LogLine]:
        """The lines that these chunks complete, in the order of the chunks."""
        lines: list[LogLine] = []
        for chunk in chunks:
            key = (chunk.attempt, chunk.node, chunk.rank, chunk.stream)
            current = self._open.get(key)
            if current is None:
                lines.extend(self._end_earlier_attempts(chunk.attempt))
                decoder = codecs.getincrementaldecoder("utf-8")("replace")
                current = self._open[key] = _OpenLine(decoder, chunk.first_line + 1)
            *complete, rest = current.decoder.decode(chunk.data).split("\n")
            current.time = chunk.time
            for text in complete:
                lines.append(LogLine(chunk.rank, chunk.stream, current.number, chunk.time, "".join([*current.pieces, text])))
                current.pieces.clear()
                current.number += 1
            if rest:
                current.pieces.append(rest)
        return lines

    def finish(self) -> list[LogLine]:
        """The last lines that no newline ended. Nothing may be fed afterwards."""
        lines: list[LogLine] = []
        for key in sorted(self._open, key=lambda key: key[0]):
            lines.extend(self._end(key))
        self._open.clear()
        return lines

    def _end_earlier_attempts(self, attempt: int) -> list[LogLine]:
        lines: list[LogLine] = []
        for key in [key for key in self._open if key[0] < attempt]:
            lines.extend(self._end(key))
            del self._open[key]
        return lines

    def _end(self, key: _Key) -> list[LogLine]:
        current = self._open[key]
        text = "".join(current.pieces) + current.decoder.decode(b"", final=True)
        return [LogLine(key[2], key[3], current.number, current.time, text)] if text else []
