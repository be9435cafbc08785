"""How a worker comes, stays and goes: registration, heartbeats, its leave."""

from __future__ import annotations

from gpulayer.protocol.devices import Device
from gpulayer.protocol.message import Message, WorkerId
from gpulayer.protocol.orders import AttemptRef


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


class Heartbeat(Message, frozen=True, kw_only=True):
    worker_id: WorkerId
    boot: str
    running: tuple[AttemptRef, ...] = ()


class HeartbeatReply(Message, frozen=True, kw_only=True):
    lost: tuple[AttemptRef, ...] = ()  # of those named as running: fenced, to be ended


class LeaveWorker(Message, frozen=True, kw_only=True):
    """This boot of the worker takes its leave: its held acquire ends, its attempts are lost at once."""

    worker_id: WorkerId
    boot: str
