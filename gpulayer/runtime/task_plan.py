"""What a task process is given, what it reports while it runs, and what it leaves: plain data, no behaviour."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from gpulayer.protocol import Device, Failure, JobId, RankOutcome, StopReason, Stream, TaskId
from gpulayer.runtime.direct import MeetingPoint
from gpulayer.spec import AnyJob, DistributedJob

Records = tuple[tuple[str, float, dict[str, Any]], ...]
"""Kind, monotonic seconds on this machine, and plain data, each."""

EndReason = StopReason | Literal["timeout"]
"""Why an attempt is ended before it is done: by order of the control plane, or because its time is up here."""

SHORT_SECONDS = 0.05
"""What ends sooner is a short process: that it runs need not be told before its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """One attempt at one node's share of a job, ready to start.

    Args:
        spec: the job.
        task_id: this node's share.
        attempt: which try.
        job_id: the job's id.
        node: this node's place, from 0.
        nodes: how many there are.
        devices: what this node was granted.
        accelerator: their kind.
        python: the interpreter that `python` means, and that ranks run under.
        workspace: holds `source/` (the working directory), `inputs/` and `output/`.
        env: the whole environment of the processes (`rank_environment.task_environment`).
        start: whether a Python command may start in a parked interpreter.
        launcher: who starts the ranks; None for a command.
        cold_reason: why that is another than `warm`, where warm was to be tried.
        meeting: where ranks meet that no torchrun starts.
        begun_at: when this worker took the assignment in, in monotonic seconds: what `RankOutcome.marks` count from.
        fetched_at: when source and inputs were there, likewise.
        equipped_at: when the environment was there that the job brings requirements for, likewise; None where it brings none.
    """

    spec: AnyJob
    task_id: TaskId
    attempt: int
    job_id: JobId
    node: int
    nodes: int
    devices: tuple[Device, ...]
    accelerator: str
    python: str
    workspace: Path
    env: dict[str, str]
    start: Literal["auto", "cold"] = "auto"
    launcher: Literal["torchrun", "direct", "warm"] | None = None
    cold_reason: str | None = None
    meeting: MeetingPoint | None = None
    begun_at: float = field(default_factory=time.monotonic)
    fetched_at: float | None = None
    equipped_at: float | None = None

    @property
    def local_ranks(self) -> int:
        """How many ranks run on this node; a command is one."""
        return len(self.devices) if isinstance(self.spec, DistributedJob) else 1


class TaskEvents(Protocol):
    """What a running task tells. Each method is called from a thread of the task process."""

    def on_output(self, rank: int | None, stream: Stream, data: bytes) -> None:
        """Bytes of a stream, in order; None for what the launcher itself printed. Must not block."""

    def on_records(self, rank: int, records: Records, lost: int) -> None:
        """What a rank's code told beside its output, in order within a process; and how many it had to drop. Must not block."""

    def on_started(self, at: float) -> None:
        """The process runs, or has run, since `at` (monotonic seconds). Told before `on_lasting` and before a failure of its own."""

    def on_lasting(self) -> None:
        """It has run for `SHORT_SECONDS` and still does."""

    def on_failure(self, failure: Failure) -> None:
        """The first rank that failed, before its siblings are stopped. May block for a second at most."""

    def publish_rendezvous(self, address: str, port: int) -> None:
        """Node 0 listens there. May block; what it raises ends the launcher."""

    def read_rendezvous(self) -> tuple[str, int]:
        """Where node 0 listens. Blocks until that is known; what it raises ends the launcher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """How the attempt ended on this node; nothing of it is alive any more."""

    state: Literal["succeeded", "failed", "cancelled"]
    ranks: tuple[RankOutcome, ...]
    failure: Failure | None
