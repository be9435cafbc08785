"""Joins the scheduler to the store: makes its view from the rows, and commits what it decides in the same transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from gpulayer.addresses import is_loopback
from gpulayer.control.scheduler.feasible import why_waiting
from gpulayer.control.scheduler.place import place_queues
from gpulayer.control.scheduler.view import AUTO, DeviceView, JobView, Placement, View, WorkerView
from gpulayer.control.store import attempts, jobs, workers
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.memory import memory_of
from gpulayer.control.store.rows import AttemptRow, JobRow, WaitingJob, WorkerRow
from gpulayer.protocol import JobId, WorkerId
from gpulayer.spec import AnyJob, DistributedJob, node_count


def place_queue(connection: StoreConnection, now: float) -> None:
    """Place every waiting job that fits; called in each transaction that frees devices or brings a worker."""
    memory = memory_of(connection)
    assert memory is not None, "placements are made by the writer"
    if not memory.waiting:
        return
    view = read_view(connection, now)
    if not view.has_room:
        return
    found: dict[str, WaitingJob] = {}

    def seen(queue: Iterable[WaitingJob]) -> Iterable[tuple[int, JobView]]:
        for job in queue:
            found[job.id] = job
            yield job.sequence, _job_view(job)

    # All decided before the first is committed, as that takes it out of its queue.
    for placement in list(place_queues(view.workers, [seen(queue.values()) for queue in memory.waiting.values()])):
        job = found[placement.job_id]
        commit_placement(connection, now, placement, attempt=job.attempt)
        jobs.change_job(connection, job.id, accelerator=placement.accelerator)


def commit_placement(connection: StoreConnection, now: float, placement: Placement, *, attempt: int) -> list[AttemptRow]:
    """Store the attempts of a placed job; what its own row says is the caller's part."""
    made: list[AttemptRow] = []
    for node, chosen in enumerate(placement.nodes):
        worker = workers.worker_row(connection, WorkerId(chosen.worker_id))
        devices = {device.id: device for device in workers.devices_of(worker)}
        made.append(
            attempts.insert_attempt(
                connection,
                now,
                job_id=JobId(placement.job_id),
                node=node,
                attempt=attempt,
                worker_id=worker.id,
                boot=worker.boot,
                devices=[devices[device_id] for device_id in chosen.device_ids],
            )
        )
    return made


def read_view(connection: StoreConnection, now: float) -> View:
    """The workers to which something may be given."""
    memory = memory_of(connection)
    if memory is None:
        held = attempts.held_devices(connection)
        return View(workers=tuple(_worker_view(row, held) for row in workers.all_workers(connection) if not workers.is_silent(row, now)))
    views: dict[str, WorkerView] = memory.views
    for row in memory.workers.values():
        if row.id not in views:
            views[row.id] = _worker_view(row, memory.held)
    return View(workers=tuple(views[row.id] for row in memory.workers.values() if not workers.is_silent(row, now)))


def job_view(spec: AnyJob) -> JobView:
    """A job that is not stored yet, as the scheduler sees it.

    torchrun is part of torch: a worker without torch could not start these ranks, whatever the client wrote into `requires`.
    """
    starts_by_torch = isinstance(spec, DistributedJob) and spec.launcher == "torchrun"
    return JobView(
        id="",
        nodes=node_count(spec),
        devices=spec.devices,
        accelerator=spec.accelerator,
        requires=frozenset(spec.requires) | (frozenset({"torch"}) if starts_by_torch else frozenset()),
    )


def waiting_reason(view: View, row: JobRow) -> str:
    """Why this queued job is not placed, in words."""
    return why_waiting(view, _job_view(row))


def _job_view(row: JobRow | WaitingJob) -> JobView:
    return JobView(
        id=row.id,
        nodes=row.nodes,
        devices=row.devices,
        accelerator=row.accelerator or AUTO,
        requires=jobs.decode_requires(row.requires),
    )


def _worker_view(row: WorkerRow, held: Mapping[WorkerId, Mapping[str, JobId]]) -> WorkerView:
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
