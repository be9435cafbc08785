"""What clients and operators say about workers and the home: listing, starting, draining, joining, its health."""

from __future__ import annotations

from typing import Literal

from gpulayer.protocol.devices import Device
from gpulayer.protocol.message import JobId, Message, WorkerId


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
    """Start workers on the control plane's own machine; answers once they have registered.

    With `job_id`, such as would let that job run: what is not said here is chosen for it.
    """

    count: int
    python: str = ""
    """Their interpreter, and that of their jobs. Empty, as from a browser: the one that local workers of this home last had, of
    several the one that provides what the job requires; where there was none, the control plane's own."""
    cpu_devices: int | None = None
    simulate_devices: str | None = None
    job_id: JobId | None = None


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
