"""Joins the scheduler to the store: makes its view from the rows, and commits what it decides in the same transaction."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection

from gpulayer.addresses import is_loopback
from gpulayer.control.scheduler.feasible import why_waiting
from gpulayer.control.scheduler.place import place
from gpulayer.control.scheduler.view import DeviceView, JobView, Placement, View, WorkerView
from gpulayer.control.store import attempts, jobs, workers
from gpulayer.control.store.jobs import JobRow
from gpulayer.control.store.workers import WorkerRow
from gpulayer.protocol import JobId, WorkerId
from gpulayer.spec import AnyJob, DistributedJob, node_count


def place_queue(connection: Connection, now: float) -> None:
    """Place every waiting job that fits; called in each transaction that frees devices or brings a worker."""
    rows = jobs.unplaced_jobs(connection)
    if rows:
        _place(connection, now, rows, read_view(connection, now))


def place_job(connection: Connection, now: float, job_id: JobId, view: View) -> None:
    """Place this one job if it fits in this view of the same transaction. Those that waited before it are not looked at:
    nothing was freed.
    """
    _place(connection, now, [jobs.job_row(connection, job_id)], view)


def read_view(connection: Connection, now: float) -> View:
    """The workers to which something may be given."""
    held = attempts.held_devices(connection)
    rows = [row for row in workers.all_workers(connection) if not workers.is_silent(row, now)]
    return View(workers=tuple(_worker_view(row, held.get(row.id, {})) for row in rows))


def job_view(spec: AnyJob, *, job_id: str = "", accelerator: str | None = None) -> JobView:
    """A job as the scheduler sees it; `accelerator` is the kind it was fixed to, if it was.

    torchrun is part of torch: a worker without torch could not start these ranks, whatever the client wrote into `requires`.
    """
    starts_by_torch = isinstance(spec, DistributedJob) and spec.launcher == "torchrun"
    return JobView(
        id=job_id,
        nodes=node_count(spec),
        devices=spec.devices,
        accelerator=accelerator or spec.accelerator,
        requires=frozenset(spec.requires) | (frozenset({"torch"}) if starts_by_torch else frozenset()),
    )


def waiting_reason(view: View, row: JobRow) -> str:
    """Why this queued job is not placed, in words."""
    return why_waiting(view, _job_view(row))


def _place(connection: Connection, now: float, rows: Iterable[JobRow], view: View) -> None:
    by_id = {row.id: row for row in rows}
    for placement in place(View(workers=view.workers, jobs=tuple(_job_view(row) for row in by_id.values()))):
        _commit(connection, now, by_id[placement.job_id], placement)


def _commit(connection: Connection, now: float, job: JobRow, placement: Placement) -> None:
    for node, chosen in enumerate(placement.nodes):
        worker = workers.worker_row(connection, WorkerId(chosen.worker_id))
        devices = {device.id: device for device in workers.devices_of(worker)}
        attempts.insert_attempt(
            connection,
            now,
            job_id=job.id,
            node=node,
            attempt=job.attempt,
            worker_id=worker.id,
            boot=worker.boot,
            devices=[devices[device_id] for device_id in chosen.device_ids],
        )
    jobs.change_job(connection, job.id, accelerator=placement.accelerator)


def _job_view(row: JobRow) -> JobView:
    return job_view(jobs.spec_of(row), job_id=row.id, accelerator=row.accelerator)


def _worker_view(row: WorkerRow, held: Iterable[str]) -> WorkerView:
    return WorkerView(
        id=row.id,
        name=row.name,
        host=row.boot_id,
        devices=tuple(DeviceView(id=device.id, accelerator=device.accelerator, index=device.index) for device in workers.devices_of(row)),
        loopback=is_loopback(row.address),
        held=frozenset(held),
        provides=frozenset(workers.frameworks_of(row)),
        draining=row.state == workers.DRAINING,
    )
