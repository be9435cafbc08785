"""What a job is from outside: its record, its tasks, how its ranks ended, and the files that went in and came out."""

from __future__ import annotations

from typing import Literal

from gpulayer.protocol.message import Digest, FailureReason, JobId, Message, WorkerId
from gpulayer.spec import AnyJob
from gpulayer.states import AttemptState, JobState


class RankError(Message, frozen=True, kw_only=True):
    """The exception that ended a rank's script."""

    type: str
    message: str
    traceback: str


class RankOutcome(Message, frozen=True, kw_only=True):
    """How one rank ended, as its agent saw it. `exit_code` is None after a signal; both are None where nobody saw the exit."""

    rank: int
    local_rank: int
    pid: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    returned: bool = False  # the script ran to its end; what the interpreter's teardown did after that does not count
    collateral: bool = False  # stopped because another rank failed first
    error: RankError | None = None
    start: Literal["warm", "cold"] | None = None
    """Whether it began in a parked interpreter; None where a launcher started it."""
    cold_reason: str | None = None
    """Why a Python program did not."""


class Failure(Message, frozen=True, kw_only=True):
    """Why a job failed: the first rank that did, or what kept the job from running."""

    reason: FailureReason
    message: str
    node: int | None = None
    worker: str | None = None
    rank: int | None = None
    device: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    error: RankError | None = None
    last_lines: tuple[str, ...] = ()


class OutputFile(Message, frozen=True, kw_only=True):
    """One file of a job's outputs; `path` is relative to `$GPULAYER_OUTPUT_DIR`."""

    path: str
    sha256: Digest
    size_bytes: int


class TaskStatus(Message, frozen=True, kw_only=True):
    """The newest attempt of one node's share."""

    node: int
    state: AttemptState
    attempt: int
    worker_id: WorkerId
    worker: str
    host: str
    devices: tuple[str, ...] = ()
    ranks: tuple[RankOutcome, ...] = ()
    outputs: tuple[OutputFile, ...] = ()


class JobStatus(Message, frozen=True, kw_only=True):
    """Everything about a job but its logs."""

    job_id: JobId
    name: str
    owner: str
    spec: AnyJob
    state: JobState
    revision: int  # grows with every change of this record
    attempt: int
    accelerator: str | None  # fixed at submit, or at first placement when no worker was known
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    waiting_for: str | None = None  # a queued job's reason, in words
    cancel_requested: bool = False
    failure: Failure | None = None
    tasks: tuple[TaskStatus, ...] = ()


class InputFile(Message, frozen=True, kw_only=True):
    """One input as it travels: an artifact, and where it is linked in the job's working directory besides `inputs/NAME`."""

    sha256: Digest
    size_bytes: int
    link: str | None = None
    archive: bool = False  # a folder, packed as a bundle is
