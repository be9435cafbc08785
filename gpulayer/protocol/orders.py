"""What a worker is told to do: the tasks that it acquires, and the attempts that it is to stop."""

from __future__ import annotations

from gpulayer.protocol.devices import Device
from gpulayer.protocol.message import Digest, JobId, Message, StopReason, TaskId, WorkerId
from gpulayer.protocol.records import InputFile
from gpulayer.spec import AnyJob


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
    requirements: Digest | None = None
    is_as_node_0: bool = False  # under the same interpreter on the same machine: what is to be said of that, node 0 says


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


class AcquireNext(Message, frozen=True, kw_only=True):
    """What a worker that finishes a task asks for besides, with the fields of `AcquireTask`; answered at once, never held."""

    free: int
    received: tuple[AttemptRef, ...] = ()
