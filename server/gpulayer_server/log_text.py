"""A job's output as a text file: what terminals would show, with the rank before each line where there are several.

Pure; pages come from the control plane, and are written by the handler.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from gpulayer.protocol import LogChunk
from gpulayer.terminal_text import TerminalText


class PlainLog:
    """Turns chunks, as they come, into lines of plain text.

    Args:
        names_ranks: each line says whose it is.
    """

    def __init__(self, *, names_ranks: bool) -> None:
        self._names_ranks = names_ranks
        self._streams: dict[tuple[int, int | None, str], _OpenStream] = {}

    def feed(self, chunks: Iterable[LogChunk]) -> bytes:
        """What is final with these chunks."""
        return "".join(self._lines(chunks)).encode()

    def finish(self) -> bytes:
        """The rest, in the order in which its streams began."""
        streams, self._streams = self._streams, {}
        return "".join(line for stream in streams.values() for line in stream.finish()).encode()

    def _lines(self, chunks: Iterable[LogChunk]) -> Iterator[str]:
        for chunk in chunks:
            key = (chunk.node, chunk.rank, chunk.stream)
            stream = self._streams.get(key)
            if stream is not None and stream.attempt != chunk.attempt:
                yield from stream.finish()  # another process printed what comes
                stream = None
            if stream is None:
                stream = self._streams[key] = _OpenStream(chunk.attempt, self._mark(chunk))
            yield from stream.feed(chunk.data)

    def _mark(self, chunk: LogChunk) -> str:
        if not self._names_ranks:
            return ""
        who = f"node {chunk.node}" if chunk.rank is None else f"rank {chunk.rank}"
        return f"[{who}{'' if chunk.stream == 'stdout' else ' stderr'}] "


class _OpenStream:
    """One stream of one process."""

    def __init__(self, attempt: int, mark: str) -> None:
        self.attempt = attempt
        self._mark = mark
        self._terminal = TerminalText()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> Iterator[str]:
        return (f"{self._mark}{line}\n" for line in self._terminal.feed(self._decoder.decode(data)))

    def finish(self) -> Iterator[str]:
        lines = [*self._terminal.feed(self._decoder.decode(b"", final=True)), *self._terminal.finish()]
        if lines and not lines[-1]:
            lines.pop()  # where the cursor stands after the last line's end
        return (f"{self._mark}{line}\n" for line in lines)
