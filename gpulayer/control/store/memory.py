"""What the writer remembers between its transactions: living workers, the devices that are held, and the jobs that wait.

The database stays the truth. What is remembered was read in a transaction of the writer, follows each of its own changes, and
is forgotten as soon as another process has committed anything or a write of ours was undone; then it is read again. Only the
writer's connection has a memory: a reader's snapshot may be older.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from gpulayer.control.store import rows
from gpulayer.control.store.changes import data_version
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.rows import WaitingJob, WorkerRow
from gpulayer.protocol import JobId, WorkerId


class Demand(NamedTuple):
    """What a job needs, in columns: jobs with equal demands fit in the same places."""

    nodes: int
    devices: int
    accelerator: str | None
    requires: bytes


def demand_of(job: WaitingJob) -> Demand:
    """What this job needs."""
    return Demand(job.nodes, job.devices, job.accelerator, job.requires)


class Memory:
    """One writer's memory.

    Attributes:
        workers: those that are not gone.
        held: worker → device → the job that holds it.
        waiting: the jobs that wait, by demand and then in the order of submission.
        of_host: boot id → workers that are not gone.
        changed: workers about which what the scheduler sees changed since the presence last looked.
        spoken: workers of which anything was stored since the leases were last looked at, gone ones too; None: any may be one.
        presence: who is there; made, read and kept up to date by `control.presence`.
    """

    __slots__ = ("_queues", "_version", "changed", "held", "is_loaded", "of_host", "presence", "spoken", "waiting", "workers")

    def __init__(self) -> None:
        self._version: int | None = None
        self.forget()

    def forget(self) -> None:
        """Read everything anew when it is next asked for."""
        self.is_loaded = False
        self.workers: dict[WorkerId, WorkerRow] = {}
        self.held: dict[WorkerId, dict[str, JobId]] = {}
        self.waiting: dict[Demand, OrderedDict[int, WaitingJob]] = {}
        self.of_host: dict[str, set[WorkerId]] = {}
        self.changed: set[WorkerId] = set()
        self.spoken: set[WorkerId] | None = None
        self.presence: Any = None
        self._queues: dict[JobId, tuple[Demand, int]] = {}

    def check(self, connection: StoreConnection) -> None:
        """Forget everything if another process has committed; asked at the beginning of each transaction."""
        version = data_version(connection)
        if version != self._version:
            self.forget()
            self._version = version

    def load(self, connection: StoreConnection) -> None:
        """Read everything; inside the transaction that will use it."""
        for row in rows.PRESENT_WORKERS.each(connection):
            self.put_worker(row)
        for reservation in rows.RESERVATIONS.all(connection):
            self.held.setdefault(reservation.worker_id, {})[reservation.device_id] = reservation.job_id
        for job in rows.WAITING_JOBS.all(connection):
            self.wait(job)
        self.is_loaded = True

    # ---- following the writer's own changes

    def put_worker(self, row: WorkerRow) -> None:
        self.changed.add(row.id)
        self._note_spoken(row.id)
        before = self.workers.pop(row.id, None) if row.state == rows.GONE else self.workers.get(row.id)
        if before is not None and (row.state == rows.GONE or before.boot_id != row.boot_id):
            of_host = self.of_host[before.boot_id]
            of_host.discard(row.id)
            if not of_host:
                del self.of_host[before.boot_id]
        if row.state != rows.GONE:
            self.workers[row.id] = row
            self.of_host.setdefault(row.boot_id, set()).add(row.id)

    def hear_worker(self, row: WorkerRow) -> None:
        """As `put_worker`, for a word that changes nothing of what the scheduler sees of a worker that was there before."""
        self.workers[row.id] = row
        self._note_spoken(row.id)

    def take_spoken(self) -> set[WorkerId] | None:
        """What `spoken` holds; begins anew."""
        spoken, self.spoken = self.spoken, set()
        return spoken

    def _note_spoken(self, worker_id: WorkerId) -> None:
        if self.spoken is not None:
            self.spoken.add(worker_id)

    def hold(self, worker_id: WorkerId, job_id: JobId, device_ids: list[str]) -> None:
        self.changed.add(worker_id)
        self.held.setdefault(worker_id, {}).update(dict.fromkeys(device_ids, job_id))

    def release(self, worker_id: WorkerId, job_id: JobId) -> None:
        """What this job held there is free: of one job at most one attempt is alive."""
        self.changed.add(worker_id)
        held = self.held.get(worker_id, {})
        for device_id in [device_id for device_id, holder in held.items() if holder == job_id]:
            del held[device_id]

    def wait(self, job: WaitingJob) -> None:
        demand = demand_of(job)
        queue = self.waiting.setdefault(demand, OrderedDict())
        is_last = not queue or job.sequence > next(reversed(queue))
        queue[job.sequence] = job
        if not is_last:  # one that is tried again takes its old place
            self.waiting[demand] = OrderedDict(sorted(queue.items()))
        self._queues[job.id] = (demand, job.sequence)

    def stop_waiting(self, job_id: JobId) -> None:
        where = self._queues.pop(job_id, None)
        if where is None:
            return
        demand, sequence = where
        queue = self.waiting[demand]
        del queue[sequence]
        if not queue:
            del self.waiting[demand]


def memory_of(connection: StoreConnection) -> Memory | None:
    """The writer's memory, read from the store if need be; None on a reader's connection."""
    memory = connection.memory
    if memory is not None and not memory.is_loaded:
        memory.load(connection)
    return memory


def memory_to_follow(connection: StoreConnection) -> Memory | None:
    """The writer's memory where it holds anything that this change has to be made in too."""
    memory = connection.memory
    return memory if memory is not None and memory.is_loaded else None
