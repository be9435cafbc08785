"""The messages between clients, workers and the control plane; `calls.py` says which call carries which.

Unknown fields are ignored, so that version N and N−1 work together. Times are UTC seconds since the epoch, stamped by the
control plane unless said otherwise.
"""

from __future__ import annotations

from typing import Literal, NewType

import msgspec

from gpulayer.spec import AnyJob
from gpulayer.states import AttemptState, JobState

PROTOCOL_VERSION = 1


def works_with(spoken: int) -> bool:
    """Whether one who speaks this version and we understand each other: the same version, or one apart."""
    return abs(spoken - PROTOCOL_VERSION) <= 1


JobId = NewType("JobId", str)
WorkerId = NewType("WorkerId", str)
TaskId = NewType("TaskId", str)  # "<job>.<node>"; with the attempt's number it names one attempt
Digest = NewType("Digest", str)  # lower-case hex SHA-256
Stream = Literal["stdout", "stderr"]
StopReason = Literal["cancel", "kill", "collateral"]  # why the control plane has an attempt stopped
FailureReason = Literal["rank", "launcher", "start", "timeout", "lost", "orphaned"]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of everything that travels."""


# ---- what a job looks like from outside


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


# ---- clients


class InputFile(Message, frozen=True, kw_only=True):
    """One input as it travels: an artifact, and where it is linked in the job's working directory besides `inputs/NAME`."""

    sha256: Digest
    size_bytes: int
    link: str | None = None
    archive: bool = False  # a folder, packed as a bundle is


class SubmitJob(Message, frozen=True, kw_only=True):
    """`idempotency_key`: the same key with the same request answers with the job that was made first."""

    spec: AnyJob
    idempotency_key: str
    source: Digest | None = None
    inputs: dict[str, InputFile] = {}


class ListJobs(Message, frozen=True, kw_only=True):
    state: JobState | None = None
    limit: int = 50
    before: str | None = None


class JobList(Message, frozen=True, kw_only=True):
    jobs: tuple[JobStatus, ...]
    next: str | None = None  # give it as `before` for the page after this one


class GetJob(Message, frozen=True, kw_only=True):
    """Held up to `wait` seconds until the job is terminal, or, with `after_revision`, until its record is newer than that."""

    job_id: JobId
    wait: float = 0.0
    after_revision: int | None = None


class CancelJob(Message, frozen=True, kw_only=True):
    job_id: JobId
    force: bool = False  # no grace: killed at once


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
    """Chunks with a sequence over `after`, oldest first; held up to `wait` seconds while there are none and more may come."""

    job_id: JobId
    rank: int | None = None
    after: int = 0
    limit_bytes: int = 1024 * 1024
    wait: float = 0.0


class LogPage(Message, frozen=True, kw_only=True):
    chunks: tuple[LogChunk, ...]
    next: int  # the cursor to go on from
    complete: bool  # the job is terminal and nothing lies behind `next`


class ReadEvents(Message, frozen=True, kw_only=True):
    after: int = 0
    wait: float = 0.0
    limit: int = 1000


class Event(Message, frozen=True, kw_only=True):
    id: int
    topic: str  # "job/<id>", "logs/<id>", "worker/<id>", "workers", "rendezvous/<task>"


class EventPage(Message, frozen=True, kw_only=True):
    events: tuple[Event, ...]
    next: int


# ---- workers, as operators see them


class Device(Message, frozen=True, kw_only=True):
    """One accelerator of a worker; `id` is unique on its host ("cuda:GPU-<uuid>", "cpu:0")."""

    id: str
    accelerator: str
    index: int
    name: str = ""
    memory_bytes: int | None = None
    simulated: bool = False


class WorkerStatus(Message, frozen=True, kw_only=True):
    worker_id: WorkerId
    name: str
    host: str
    state: Literal["alive", "draining", "gone"]
    local: bool  # started by this control plane on its own machine
    devices: tuple[Device, ...]
    devices_held: dict[str, JobId]
    frameworks: dict[str, str]
    python: str
    version: str
    registered_at: float
    last_seen_at: float


class ListWorkers(Message, frozen=True, kw_only=True):
    include_gone: bool = False


class WorkerList(Message, frozen=True, kw_only=True):
    workers: tuple[WorkerStatus, ...]


class StartLocalWorkers(Message, frozen=True, kw_only=True):
    """Start workers on the control plane's own machine, with the caller's interpreter; answers once they have registered."""

    count: int
    python: str
    cpu_devices: int | None = None
    simulate_devices: str | None = None


class DrainWorker(Message, frozen=True, kw_only=True):
    worker_id: WorkerId


class GetHealth(Message, frozen=True, kw_only=True):
    pass


class Health(Message, frozen=True, kw_only=True):
    protocol: int
    version: str
    home_id: str
    workers_alive: int
    jobs_unfinished: int


class CreateJoinToken(Message, frozen=True, kw_only=True):
    """A token with which one worker may register, once."""

    valid_seconds: float = 3600.0


class JoinToken(Message, frozen=True, kw_only=True):
    token: str
    expires_at: float


# ---- the worker protocol


class RegisterWorker(Message, frozen=True, kw_only=True):
    """`boot` is drawn anew by every start of an agent: a worker is its id and its boot."""

    boot: str
    protocol: int
    version: str
    name: str
    host: str
    boot_id: str  # the host's (one host under two addresses is one host)
    address: str  # where other workers reach this one
    python: str
    devices: tuple[Device, ...]
    frameworks: dict[str, str]  # "torch" → "2.13.0"; capabilities as "torch.cuda" → ""
    local: bool = False
    worker_id: WorkerId | None = None  # a worker that comes back


class Registered(Message, frozen=True, kw_only=True):
    worker_id: WorkerId
    token: str | None  # only for a worker that joined: shown once, stored hashed
    idle_lease_seconds: float
    busy_lease_seconds: float
    heartbeat_seconds: float


class AttemptRef(Message, frozen=True, kw_only=True):
    task_id: TaskId
    attempt: int


class TaskAssignment(Message, frozen=True, kw_only=True):
    """What a worker needs to run its share; repeated until a later acquire names it as received."""

    task_id: TaskId
    attempt: int
    job_id: JobId
    node: int
    nodes: int
    devices: tuple[Device, ...]
    accelerator: str
    spec: AnyJob
    source: Digest | None
    inputs: dict[str, InputFile]


class StopOrder(Message, frozen=True, kw_only=True):
    """Stop this attempt; repeated until the attempt has ended."""

    task_id: TaskId
    attempt: int
    reason: StopReason


class AcquireTask(Message, frozen=True, kw_only=True):
    """Held up to `wait` seconds until there is an assignment (if `free` > 0) or an order that is not in `known_orders`."""

    worker_id: WorkerId
    boot: str
    free: int
    received: tuple[AttemptRef, ...] = ()
    known_orders: tuple[StopOrder, ...] = ()
    wait: float = 0.0


class WorkerOrders(Message, frozen=True, kw_only=True):
    assignments: tuple[TaskAssignment, ...] = ()
    stops: tuple[StopOrder, ...] = ()
    drain: bool = False  # take nothing more, end when idle


class Heartbeat(Message, frozen=True, kw_only=True):
    worker_id: WorkerId
    boot: str
    running: tuple[AttemptRef, ...] = ()


class HeartbeatReply(Message, frozen=True, kw_only=True):
    lost: tuple[AttemptRef, ...] = ()  # of those named as running: fenced, to be ended


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


class AcquireNext(Message, frozen=True, kw_only=True):
    """What a worker that finishes a task asks for besides, with the fields of `AcquireTask`; answered at once, never held."""

    free: int
    received: tuple[AttemptRef, ...] = ()


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


class TaskFinished(Message, frozen=True, kw_only=True):
    """Stored. `orders` is None where none were asked for, or the control plane does not know that one may."""

    orders: WorkerOrders | None = None


class LeaveWorker(Message, frozen=True, kw_only=True):
    """This boot of the worker takes its leave: its held acquire ends, its attempts are lost at once."""

    worker_id: WorkerId
    boot: str


class Done(Message, frozen=True, kw_only=True):
    """Stored."""
