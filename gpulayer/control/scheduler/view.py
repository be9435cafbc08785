"""What the scheduler decides from: workers with their free devices, and the jobs that wait. Plain values, no clock, no store."""

from __future__ import annotations

from dataclasses import dataclass

AUTO = "auto"
KINDS_BEST_FIRST = ("cuda", "rocm", "mps", "cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """One device of a worker."""

    id: str
    accelerator: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """One live worker.

    Args:
        host: the same for workers of one machine.
        loopback: its address serves its own host only.
        devices: all of them, held ones too.
        held: ids of devices that an attempt holds.
        provides: frameworks and capabilities (`torch`, `torch.cuda`).
        draining: it is given nothing more.
    """

    id: str
    name: str
    host: str
    devices: tuple[DeviceView, ...]
    loopback: bool = False
    held: frozenset[str] = frozenset()
    provides: frozenset[str] = frozenset()
    draining: bool = False

    def of_kind(self, kind: str) -> tuple[DeviceView, ...]:
        return tuple(device for device in self.devices if device.accelerator == kind)

    def free(self, kind: str) -> tuple[DeviceView, ...]:
        """Free devices of a kind, in the order in which they are given out."""
        free = [device for device in self.of_kind(kind) if device.id not in self.held]
        return tuple(sorted(free, key=lambda device: (device.index, device.id)))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job that waits: `devices` of one kind on each of `nodes` different workers, all at once."""

    id: str
    nodes: int
    devices: int
    accelerator: str
    requires: frozenset[str] = frozenset()

    def demand(self) -> str:
        """What it needs, in words."""
        kind = "devices of one kind" if self.accelerator == AUTO else self.accelerator
        return f"{self.devices} × {kind}" + (f" on each of {self.nodes} nodes" if self.nodes > 1 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that one decision sees; `jobs` are in the order of submission."""

    workers: tuple[WorkerView, ...]
    jobs: tuple[JobView, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlacement:
    """One node of a placed job."""

    worker_id: str
    device_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a whole job goes; `nodes[k]` is node k."""

    job_id: str
    accelerator: str
    nodes: tuple[NodePlacement, ...]
