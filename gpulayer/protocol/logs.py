"""A job's output as it travels: the chunks that workers send and clients read."""

from __future__ import annotations

from gpulayer.protocol.message import JobId, Message, Stream


class LogChunk(Message, frozen=True, kw_only=True):
    """A piece of one stream of one rank. `rank` is None for what the launcher itself printed."""

    attempt: int
    node: int
    rank: int | None
    stream: Stream
    offset: int  # bytes of this stream before this chunk
    first_line: int  # complete lines of this stream before this chunk
    time: float  # stamped by the worker when it was read
    data: bytes
    sequence: int = 0  # assigned by the control plane, per job; the reading cursor


class ReadLogs(Message, frozen=True, kw_only=True):
    """Chunks with a sequence over `after`, oldest first; held up to `wait` seconds while there are none and more may come.

    With `tail_bytes` and `after` 0, about the last that many bytes of what is there, in whole chunks. With `before`, the chunks that
    end before that sequence, as many as `limit_bytes` allows: never held, empty at the beginning.
    """

    job_id: JobId
    rank: int | None = None
    after: int = 0
    limit_bytes: int = 1024 * 1024
    wait: float = 0.0
    tail_bytes: int | None = None
    before: int | None = None


class LogPage(Message, frozen=True, kw_only=True):
    chunks: tuple[LogChunk, ...]
    next: int  # the cursor to go on from
    complete: bool  # the job is terminal and nothing lies behind `next`
