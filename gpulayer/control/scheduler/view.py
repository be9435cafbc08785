"""What the scheduler decides from: workers with their free devices, and the jobs that wait. Plain values, no clock, no store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

AUTO = "auto"
KINDS_BEST_FIRST = ("cuda", "rocm", "mps", "cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """One device of a worker."""

    id: str
    accelerator: str
    index: int


@dataclass(frozen=True, kw_only=True)  # no slots: what is derived from the devices is kept, as every decision asks for it again
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

    @property
    def has_room(self) -> bool:
        """Whether any of its devices is free."""
        return len(self.held) < len(self.devices)

    def counts(self) -> Iterator[tuple[str, int, int]]:
        """Each kind that it has, with how many devices and how many free ones."""
        for kind, devices in self._by_kind.items():
            yield kind, len(devices), len(self.free(kind))

    def of_kind(self, kind: str) -> tuple[DeviceView, ...]:
        return self._by_kind.get(kind, ())

    def free(self, kind: str) -> tuple[DeviceView, ...]:
        """Free devices of a kind, in the order in which they are given out."""
        return self._free_by_kind.get(kind, ())

    @cached_property
    def _by_kind(self) -> dict[str, tuple[DeviceView, ...]]:
        return _by_kind(self.devices)

    @cached_property
    def _free_by_kind(self) -> dict[str, tuple[DeviceView, ...]]:
        free = [device for device in self.devices if device.id not in self.held]
        return _by_kind(sorted(free, key=lambda device: (device.index, device.id)))


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


def _by_kind(devices: Iterable[DeviceView]) -> dict[str, tuple[DeviceView, ...]]:
    found: dict[str, list[DeviceView]] = {}
    for device in devices:
        found.setdefault(device.accelerator, []).append(device)
    return {kind: tuple(those) for kind, those in found.items()}
