"""Where the waiting jobs go. Pure: the caller commits the answer, or not.

All nodes of a job at once or none, on different workers, whole devices by id. A job that does not fit does not hold up the
jobs behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpulayer.control.scheduler.feasible import chosen_kind, groups, suitable_workers
from gpulayer.control.scheduler.score import best_first
from gpulayer.control.scheduler.view import JobView, NodePlacement, Placement, View, WorkerView


def place(view: View) -> list[Placement]:
    """The placements of every job that fits, each one seeing the devices that those before it took."""
    workers = {worker.id: worker for worker in view.workers}
    placements: list[Placement] = []
    for job in view.jobs:
        if not any(len(worker.held) < len(worker.devices) for worker in workers.values()):
            break
        placement = place_job(tuple(workers.values()), job)
        if placement is None:
            continue
        placements.append(placement)
        for node in placement.nodes:
            worker = workers[node.worker_id]
            workers[node.worker_id] = replace(worker, held=worker.held | set(node.device_ids))
    return placements


def place_job(workers: Sequence[WorkerView], job: JobView) -> Placement | None:
    """Where this one job goes, or None while it has to wait.

    An `auto` job waits for the best kind that the workers of this view could give it, rather than take a lesser one.
    """
    kind = chosen_kind(workers, job)
    if kind is None:
        return None
    for group in groups(suitable_workers(workers, job), job):
        fitting = [worker for worker in group if len(worker.free(kind)) >= job.devices]
        if len(fitting) < job.nodes:
            continue
        nodes = tuple(
            NodePlacement(worker_id=worker.id, device_ids=tuple(device.id for device in worker.free(kind)[: job.devices]))
            for worker in best_first(fitting, kind)[: job.nodes]
        )
        return Placement(job_id=job.id, accelerator=kind, nodes=nodes)
    return None
