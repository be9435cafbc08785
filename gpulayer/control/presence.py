"""Who is there: the scheduler's fleet, kept up to date from what the writer remembers, and how many devices are alive at once.

A worker is there while it is not gone and was heard within an idle lease. Made from the memory of the writer's transaction and
forgotten with it (`store/memory.py`); silence is noticed when the presence is next asked for. Runs in the writer's thread.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from gpulayer.addresses import is_loopback
from gpulayer.control.scheduler.feasible import Reason, why_waiting
from gpulayer.control.scheduler.fleet import Fleet
from gpulayer.control.scheduler.view import DeviceView, JobView, View, WorkerView
from gpulayer.control.store import attempts, workers
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.memory import Memory, memory_of
from gpulayer.control.store.rows import WorkerRow
from gpulayer.control.store.workers import LargestGroup
from gpulayer.protocol import JobId, WorkerId
from gpulayer.settings import IDLE_LEASE_SECONDS

_Kind = tuple[str, bool]  # an accelerator, and whether it is simulated


class Presence:
    """What one writer's memory says about the workers that are there.

    Attributes:
        fleet: as the scheduler sees them.
    """

    def __init__(self, memory: Memory) -> None:
        self.fleet = Fleet()
        self._memory = memory
        self._offers: dict[WorkerId, tuple[tuple[_Kind, int], ...]] = {}  # of those that are there
        self._alive: dict[_Kind, Counter[int]] = {}  # how many workers have exactly so many
        self._silent: set[WorkerId] = set()
        self._next_silent: list[tuple[float, WorkerId]] = []  # a heap: by a word that each said, not always its last
        self._queued: dict[WorkerId, float] = {}  # the entry of each there; others of the same worker are void
        self._noted: dict[tuple[str, bool, int], int] | None = None
        self._reasons: dict[tuple[object, ...], Reason] = {}  # by demand; of the fleet as it is
        memory.changed.update(memory.workers)

    def follow(self, now: float) -> None:
        """Take in what changed, and who fell silent."""
        while self._next_silent and now - self._next_silent[0][0] > IDLE_LEASE_SECONDS:
            said_at, worker_id = heapq.heappop(self._next_silent)
            if self._queued.get(worker_id) == said_at:
                del self._queued[worker_id]
                self._memory.changed.add(worker_id)
        # By clocks that were read out of order, or were set back, one that was silent may not be so.
        self._memory.changed.update(self._silent)
        if self._memory.changed:
            self._reasons.clear()
        for worker_id in self._memory.changed:
            self._take_in(worker_id, now)
        self._memory.changed.clear()

    def why_waiting(self, job: JobView) -> Reason:
        """As `feasible.why_waiting` over the whole fleet; equal jobs that wait for the same are told the same."""
        demand = (job.nodes, job.devices, job.accelerator, job.requires)
        reason = self._reasons.get(demand)
        if reason is None:
            reason = self._reasons[demand] = why_waiting(View(workers=self.fleet.workers), job)
        return reason

    def note_largest_groups(self, connection: StoreConnection) -> None:
        """Remember how many workers are alive at once with at least so many devices of a kind.

        Simulated devices are counted apart: what was once simulated here is no reason to wait for the real thing.
        """
        if self._noted is None:
            self._noted = {
                (group.accelerator, group.simulated, group.devices): group.workers for group in workers.read_largest_groups(connection)
            }
        for (accelerator, simulated), sizes in self._alive.items():
            alive = 0
            for size, count in sorted(sizes.items(), reverse=True):
                alive += count
                if alive > self._noted.get((accelerator, simulated, size), 0):
                    workers.put_largest_group(
                        connection, LargestGroup(accelerator=accelerator, simulated=simulated, devices=size, workers=alive)
                    )
                    self._noted[accelerator, simulated, size] = alive

    def _take_in(self, worker_id: WorkerId, now: float) -> None:
        row = self._memory.workers.get(worker_id)
        if row is None:
            self._silent.discard(worker_id)
            self._leave(worker_id)
        elif workers.is_silent(row, now):
            self._silent.add(worker_id)
            self._leave(worker_id)
        else:
            self._silent.discard(worker_id)
            self.fleet.put(worker_view(row, self._memory.held))
            self._offer(worker_id, _offers(row))
            if row.last_seen_at < self._queued.get(worker_id, math.inf):
                self._queued[worker_id] = row.last_seen_at
                heapq.heappush(self._next_silent, (row.last_seen_at, worker_id))

    def _offer(self, worker_id: WorkerId, offers: tuple[tuple[_Kind, int], ...]) -> None:
        before = self._offers.get(worker_id, ())
        if before == offers:
            return
        self._withdraw(before)
        for kind, size in offers:
            self._alive.setdefault(kind, Counter())[size] += 1
        self._offers[worker_id] = offers

    def _leave(self, worker_id: WorkerId) -> None:
        self.fleet.remove(worker_id)
        self._withdraw(self._offers.pop(worker_id, ()))

    def _withdraw(self, offers: tuple[tuple[_Kind, int], ...]) -> None:
        for kind, size in offers:
            sizes = self._alive[kind]
            sizes[size] -= 1
            if not sizes[size]:
                del sizes[size]


def presence_of(connection: StoreConnection, now: float) -> Presence:
    """Who is there, for the transaction of the writer."""
    memory = memory_of(connection)
    assert memory is not None, "only the writer has a memory"
    if memory.presence is None:
        memory.presence = Presence(memory)
    presence: Presence = memory.presence
    presence.follow(now)
    return presence


def worker_view(row: WorkerRow, held: Mapping[WorkerId, Mapping[str, JobId]]) -> WorkerView:
    """A stored worker as the scheduler sees it."""
    return WorkerView(
        id=row.id,
        name=row.name,
        host=row.boot_id,
        devices=_device_views(row.devices),
        loopback=_is_loopback(row.address),
        held=frozenset(held.get(row.id, ())),
        provides=workers.provided_by(row),
        draining=row.state == workers.DRAINING,
    )


@lru_cache(maxsize=1024)
def _device_views(encoded: bytes) -> tuple[DeviceView, ...]:
    return tuple(
        DeviceView(id=device.id, accelerator=device.accelerator, index=device.index) for device in attempts.decode_devices(encoded)
    )


_is_loopback = lru_cache(maxsize=1024)(is_loopback)


def _offers(row: WorkerRow) -> tuple[tuple[_Kind, int], ...]:
    return tuple(Counter((device.accelerator, device.simulated) for device in workers.devices_of(row)).items())
