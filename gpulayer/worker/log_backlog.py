"""A task's output between reading and sending: cut into chunks, bounded in memory, the rest in a file of the workspace.

No threads and no network here; log_sender.py ships what lies in it.
"""

from __future__ import annotations

import collections
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import msgspec

from gpulayer.protocol import LogChunk, Stream
from gpulayer.settings import LOG_CHUNK_BYTES, LOG_FLUSH_SECONDS
from gpulayer.worker.overwritten import without_overwritten

MEMORY_BYTES = 8 * 1024 * 1024
_LENGTH_BYTES = 4
_CHUNK_COST_BYTES = 512
"""What a chunk weighs besides its bytes, so that a backlog of tiny ones is bounded too."""


@dataclass(slots=True)
class _Position:
    """Where the next byte of one stream stands."""

    offset: int = 0
    line: int = 0


@dataclass(slots=True)
class _OpenChunk:
    """The newest output of one rank, still growing."""

    stream: Stream
    time: float
    data: bytearray


class LogBacklog:
    """First in, first out, exact within a rank. Not thread-safe.

    When the local disk fails, what is held in memory is still handed out, nothing more is taken in, and `fault` says so.

    Args:
        node: for the chunks.
        attempt: for the chunks.
        spool: path of the overflow file; it exists only while it is needed.
        memory_bytes: how much is held in memory, spooled or not.
        clock: UTC seconds.
    """

    def __init__(self, *, node: int, attempt: int, spool: Path, memory_bytes: int = MEMORY_BYTES, clock: Callable[[], float]) -> None:
        self._node = node
        self._attempt = attempt
        self._memory_bytes = memory_bytes
        self._clock = clock
        self._positions: dict[tuple[int | None, Stream], _Position] = {}
        self._open: dict[int | None, _OpenChunk] = {}
        self._sealed: collections.deque[LogChunk] = collections.deque()
        self._held_bytes = 0
        self._spool = _Spool(spool)
        self.pending_lines = 0
        """Line ends since the last `seal`."""
        self.pending_bytes = 0
        self.fault: OSError | None = None
        """Why output was dropped: the spool could not be written or read (a full disk)."""

    @property
    def is_empty(self) -> bool:
        return not self._open and not self._sealed and self._spool.is_empty

    @property
    def is_spooled(self) -> bool:
        """Whether some of it lies in the overflow file."""
        return not self._spool.is_empty

    @property
    def has_sealed(self) -> bool:
        """Whether `take` has something to hand out."""
        return bool(self._sealed) or not self._spool.is_empty

    @property
    def memory_bytes(self) -> int:
        """What is held in memory at this moment."""
        return self._held_bytes + sum(len(chunk.data) for chunk in self._open.values())

    def add(self, rank: int | None, stream: Stream, data: bytes) -> None:
        """Take in what was read; never waits for anything but the local disk."""
        view = memoryview(data)
        while view and self.fault is None:
            chunk = self._chunk_for(rank, stream)
            piece = view[: LOG_CHUNK_BYTES - len(chunk.data)]
            chunk.data += piece
            self.pending_lines += bytes(piece).count(b"\n")
            self.pending_bytes += len(piece)
            view = view[len(piece) :]
            if len(chunk.data) == LOG_CHUNK_BYTES:
                self._seal_rank(rank)

    def seal(self) -> None:
        """Close all growing chunks, so that `take` hands them out."""
        for rank in list(self._open):
            self._seal_rank(rank)
        if self.fault is not None:
            self._open.clear()
        self.pending_lines = self.pending_bytes = 0

    def take(self, limit_bytes: int) -> tuple[LogChunk, ...]:
        """Remove and return the oldest sealed chunks, at least one if there is any, up to about `limit_bytes`."""
        batch: list[LogChunk] = []
        size = 0
        while size < limit_bytes:
            if not self._sealed:
                self._fill_from_spool(min(limit_bytes, self._memory_bytes))
                if not self._sealed:
                    break
            chunk = self._sealed.popleft()
            self._held_bytes -= len(chunk.data) + _CHUNK_COST_BYTES
            batch.append(chunk)
            size += len(chunk.data)
        return tuple(batch)

    def close(self) -> None:
        """Forget everything, the spool file too."""
        self._open.clear()
        self._sealed.clear()
        self._held_bytes = 0
        self._spool.close()

    def _chunk_for(self, rank: int | None, stream: Stream) -> _OpenChunk:
        chunk = self._open.get(rank)
        now = self._clock()
        # No chunk spans more than a flush interval, also while nothing can be sent: only so much may be overwritten.
        if chunk is not None and chunk.stream == stream and now - chunk.time <= LOG_FLUSH_SECONDS:
            return chunk
        if chunk is not None:
            # Sealed when the rank changes its stream: that keeps the order of reading between the two.
            self._seal_rank(rank)
        chunk = _OpenChunk(stream, now, bytearray())
        self._open[rank] = chunk
        return chunk

    def _seal_rank(self, rank: int | None) -> None:
        chunk = self._open.pop(rank)
        position = self._positions.setdefault((rank, chunk.stream), _Position())
        data = without_overwritten(bytes(chunk.data))
        sealed = LogChunk(
            attempt=self._attempt,
            node=self._node,
            rank=rank,
            stream=chunk.stream,
            offset=position.offset,
            first_line=position.line,
            time=chunk.time,
            data=data,
        )
        position.offset += len(data)
        position.line += data.count(b"\n")
        if self.fault is not None:
            return
        # Once something lies in the spool, everything newer goes there too, or the order would be lost.
        if self._spool.is_empty and self._held_bytes + len(sealed.data) + _CHUNK_COST_BYTES <= self._memory_bytes:
            self._hold(sealed)
            return
        try:
            self._spool.append(sealed)
        except OSError as error:
            self.fault = error

    def _fill_from_spool(self, limit_bytes: int) -> None:
        try:
            for chunk in self._spool.read(limit_bytes):
                self._hold(chunk)
        except OSError as error:
            self.fault = error
            self._spool.give_up()

    def _hold(self, chunk: LogChunk) -> None:
        self._sealed.append(chunk)
        self._held_bytes += len(chunk.data) + _CHUNK_COST_BYTES


class _Spool:
    """Chunks in a file, each behind its length; emptied when the last one has been read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: FileIO | None = None
        self._read_at = 0
        self._end = 0

    @property
    def is_empty(self) -> bool:
        return self._read_at == self._end

    def append(self, chunk: LogChunk) -> None:
        if self._file is None:
            # Without a buffer: a disk that is full says so at once, and what was written before stays readable.
            self._file = self._path.open("w+b", buffering=0)
        record = msgspec.msgpack.encode(chunk)
        data = memoryview(len(record).to_bytes(_LENGTH_BYTES, "big") + record)
        self._file.seek(self._end)
        while data:
            data = data[self._file.write(data) :]
        self._end = self._file.tell()

    def read(self, limit_bytes: int) -> list[LogChunk]:
        chunks: list[LogChunk] = []
        if self._file is None:
            return chunks
        stop_at = min(self._read_at + limit_bytes, self._end)
        while self._read_at < stop_at:
            length = int.from_bytes(self._read_exactly(self._read_at, _LENGTH_BYTES), "big")
            chunks.append(msgspec.msgpack.decode(self._read_exactly(self._read_at + _LENGTH_BYTES, length), type=LogChunk))
            self._read_at += _LENGTH_BYTES + length
        if self._read_at == self._end:
            self._file.truncate(0)
            self._read_at = self._end = 0
        return chunks

    def give_up(self) -> None:
        """Count as empty, whatever lies there."""
        self._read_at = self._end

    def _read_exactly(self, at: int, size: int) -> bytes:
        assert self._file is not None
        data = os.pread(self._file.fileno(), size, at)
        if len(data) != size:
            raise OSError(errno.EIO, "the overflow file of the output is shorter than what was written", str(self._path))
        return data

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._path.unlink(missing_ok=True)
        self._read_at = self._end = 0
