"""What a job is from outside: its record, its tasks, how its ranks ended, and the files that went in and came out."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import msgspec

from gpulayer.protocol.message import Digest, FailureReason, JobId, Message, WorkerId
from gpulayer.spec import AnyJob
from gpulayer.states import AttemptState, JobState, WaitingReason

MARKS = ("fetched", "equipped", "launched", "entered", "imported", "met", "first_step", "last_step", "returned", "ended")
"""The steps of a rank, in their order: source and inputs are there; so is the environment of a job that brings requirements; its
process was told what to run; its entry runs; torch is imported; `init_process_group` is through; the first and the last training
step; the script is through; the process has ended."""


class Frame(Message, frozen=True, kw_only=True):
    """One line of a Python stack. `text` is that line of the source, without its indent, where it is known."""

    file: str
    line: int
    function: str
    text: str | None = None


class RankError(Message, frozen=True, kw_only=True):
    """The exception that ended a rank's script. `frames`: the script's own, the innermost last."""

    type: str
    message: str
    traceback: str
    frames: tuple[Frame, ...] = ()


class ThreadStack(Message, frozen=True, kw_only=True):
    """What one thread of a rank was doing when the rank was stopped: the innermost frame last."""

    is_main: bool
    frames: tuple[Frame, ...]


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
    launcher: Literal["torchrun", "direct", "warm"] | None = None
    """Who started it; of a command, `warm` where it began with torch imported, else None."""
    start: Literal["warm", "cold"] | None = None
    """Whether a command began in a parked interpreter; None for the ranks of a launcher."""
    cold_reason: str | None = None
    """Why a Python command did not, or why what may start with torch imported did not."""
    stacks: tuple[ThreadStack, ...] = ()
    """What it was doing when it was stopped because another rank failed, or because its time was up."""
    marks: dict[str, float] = {}
    """When it reached which step (`MARKS`), in seconds since its worker took the assignment in."""


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
    lasting: bool = False
    """Trying again would end the same way, and is not done."""


class OutputFile(Message, frozen=True, kw_only=True):
    """One file of a job's outputs; `path` is relative to `$GPULAYER_OUTPUT_DIR`."""

    path: str
    sha256: Digest
    size_bytes: int


class TaskEnvironment(Message, frozen=True, kw_only=True, omit_defaults=True):
    """What a node's ranks find: the interpreter, and those packages that the job's program uses or that it asked for."""

    python: str
    implementation: str = "cpython"
    packages: dict[str, str] = {}  # name → version; what is not installed is not in it
    differences: tuple[str, ...] = ()  # from where the program was written, in words
    requirements: Digest | None = None  # of the file that it was built from
    build_seconds: float | None = None  # None: nothing had to be built


class TaskStatus(Message, frozen=True, kw_only=True):
    """The newest attempt of one node's share."""

    node: int
    state: AttemptState
    attempt: int
    worker_id: WorkerId
    worker: str
    host: str
    placed_at: float | None = None
    devices: tuple[str, ...] = ()
    ranks: tuple[RankOutcome, ...] = ()
    outputs: tuple[OutputFile, ...] = ()
    environment: TaskEnvironment | None = None
    """Of a program whose manifest says what it uses, and of a job that brings requirements; known with the end of the task."""


LONGEST_PROGRESS_TEXT = 200
_Amount = Annotated[float, msgspec.Meta(ge=0, le=sys.float_info.max)]  # JSON has no infinity: a record with one could not be read


class Progress(Message, frozen=True, kw_only=True):
    """How far a job is, as its rank 0 says."""

    done: _Amount
    total: _Amount | None = None
    text: Annotated[str, msgspec.Meta(max_length=LONGEST_PROGRESS_TEXT)] | None = None
    time: float  # UTC seconds by the worker's clock, of when the rank said it


class Waiting(Message, frozen=True, kw_only=True):
    """Why a job is queued, for programs; `JobStatus.waiting_for` has it in words."""

    reason: WaitingReason
    local_workers: int = 0
    """How many more workers on the control plane's own machine would let it run (`StartLocalWorkers`, with this job's id); 0 where
    they would not, or where somebody else's worker is alive, so that there is an operator who adds workers."""
    cpu_devices: int | None = None
    """How many CPU devices each of those is to offer."""


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
    waiting: Waiting | None = None  # the same for programs
    cancel_requested: bool = False
    failure: Failure | None = None
    progress: Progress | None = None
    tasks: tuple[TaskStatus, ...] = ()


class InputFile(Message, frozen=True, kw_only=True):
    """One input as it travels: an artifact, and where it is linked in the job's working directory besides `inputs/NAME`."""

    sha256: Digest
    size_bytes: int
    link: str | None = None
    archive: bool = False  # a folder, packed as a bundle is
