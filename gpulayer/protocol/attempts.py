"""What a worker says about one attempt: its start, its output, its meeting point, its end."""

from __future__ import annotations

from typing import Literal

from gpulayer.protocol.logs import LogChunk
from gpulayer.protocol.message import Message, TaskId, WorkerId
from gpulayer.protocol.orders import AcquireNext, WorkerOrders
from gpulayer.protocol.records import Failure, OutputFile, RankOutcome, TaskEnvironment


class TaskMessage(Message, frozen=True, kw_only=True):
    """Base of what a worker says about one attempt; refused with `AttemptLost` when that attempt is over."""

    task_id: TaskId
    attempt: int
    worker_id: WorkerId
    boot: str


class StartTask(TaskMessage, frozen=True, kw_only=True):
    """The process runs."""


class AppendLogs(TaskMessage, frozen=True, kw_only=True):
    chunks: tuple[LogChunk, ...]


class PublishRendezvous(TaskMessage, frozen=True, kw_only=True):
    """Where node 0 of this attempt listens."""

    address: str
    port: int


class ReadRendezvous(TaskMessage, frozen=True, kw_only=True):
    wait: float = 0.0


class Rendezvous(Message, frozen=True, kw_only=True):
    """Empty fields: nothing has been published yet."""

    address: str | None = None
    port: int | None = None


class ReportFailure(TaskMessage, frozen=True, kw_only=True):
    """A rank has failed and its siblings are being stopped: sent at once, so that the first report names the guilty rank."""

    failure: Failure


class FinishTask(TaskMessage, frozen=True, kw_only=True):
    """`acquire`: the answer is to carry the worker's orders, leased and repeated as those of an acquire."""

    state: Literal["succeeded", "failed", "cancelled"]
    ranks: tuple[RankOutcome, ...] = ()
    failure: Failure | None = None
    outputs: tuple[OutputFile, ...] = ()
    chunks: tuple[LogChunk, ...] = ()
    """What is left of its output, stored as with `append_logs`."""
    since_start_seconds: float | None = None
    """How long ago its process began to run: a short one's start is told by its end."""
    acquire: AcquireNext | None = None
    environment: TaskEnvironment | None = None


class TaskFinished(Message, frozen=True, kw_only=True):
    """Stored. `orders` is None where none were asked for, or the control plane does not know that one may."""

    orders: WorkerOrders | None = None
