"""Joins the scheduler to the store: makes its view from the rows, and commits what it decides in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpulayer.control.presence import presence_of, worker_view
from gpulayer.control.scheduler.feasible import Reason, why_waiting
from gpulayer.control.scheduler.place import place_queues
from gpulayer.control.scheduler.view import AUTO, JobView, Placement, View
from gpulayer.control.store import attempts, jobs, workers
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.memory import memory_of
from gpulayer.control.store.rows import AttemptRow, JobRow, WaitingJob
from gpulayer.protocol import JobId, WorkerId
from gpulayer.spec import AnyJob, DistributedJob, node_count


def place_queue(connection: StoreConnection, now: float) -> None:
    """Place every waiting job that fits; called in each transaction that frees devices or brings a worker."""
    memory = memory_of(connection)
    assert memory is not None, "placements are made by the writer"
    if not memory.waiting:
        return
    fleet = presence_of(connection, now).fleet
    found: dict[str, WaitingJob] = {}

    def seen(queue: Iterable[WaitingJob]) -> Iterable[tuple[int, JobView]]:
        for job in queue:
            found[job.id] = job
            yield job.sequence, _job_view(job)

    # All decided before the first is committed, as that takes it out of its queue.
    for placement in list(place_queues(fleet, [seen(queue.values()) for queue in memory.waiting.values()])):
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


def waiting_reasons(connection: StoreConnection, now: float) -> Callable[[JobRow], Reason]:
    """A function that says why a queued job is not placed."""
    if connection.memory is not None:
        presence = presence_of(connection, now)
        return lambda row: presence.why_waiting(_job_view(row))
    held = attempts.held_devices(connection)
    view = View(workers=tuple(worker_view(row, held) for row in workers.all_workers(connection) if not workers.is_silent(row, now)))
    return lambda row: why_waiting(view, _job_view(row))


def job_view(spec: AnyJob) -> JobView:
    """A job that is not stored yet, as the scheduler sees it.

    torchrun is part of torch, and a warm rank has it imported: a worker without could not start these ranks, whatever the client
    wrote into `requires`.
    """
    starts_by_torch = isinstance(spec, DistributedJob) and spec.launcher != "direct"
    return JobView(
        id="",
        nodes=node_count(spec),
        devices=spec.devices,
        accelerator=spec.accelerator,
        requires=frozenset(spec.requires) | (frozenset({"torch"}) if starts_by_torch else frozenset()),
    )


def _job_view(row: JobRow | WaitingJob) -> JobView:
    return JobView(
        id=row.id,
        nodes=row.nodes,
        devices=row.devices,
        accelerator=row.accelerator or AUTO,
        requires=jobs.decode_requires(row.requires),
    )
