"""Where the waiting jobs go. Pure: the caller commits the answer, or not.

All nodes of a job at once or none, on different workers, whole devices by id. A job that does not fit does not hold up the
jobs behind it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gpulayer.control.scheduler.feasible import chosen_kind, groups, suitable_workers
from gpulayer.control.scheduler.score import best_of
from gpulayer.control.scheduler.view import JobView, NodePlacement, Placement, View, WorkerView

_Head = tuple[int, int, JobView, Iterator[tuple[int, JobView]]]
"""The first of a queue: its place in the order of all, the queue's number (so that no two are equal), and what is behind it."""


def place(view: View) -> list[Placement]:
    """The placements of every job that fits, each one seeing the devices that those before it took."""
    queues: dict[tuple[object, ...], list[tuple[int, JobView]]] = {}
    for order, job in enumerate(view.jobs):
        queues.setdefault((job.nodes, job.devices, job.accelerator, job.requires), []).append((order, job))
    return list(place_queues(view.workers, queues.values()))


def place_queues(workers: Iterable[WorkerView], queues: Iterable[Iterable[tuple[int, JobView]]]) -> Iterator[Placement]:
    """As `place`, for jobs in one queue for each demand, each job with its place in the order of all.

    Once one of a queue does not fit, none behind it does: what is free only shrinks. So no more jobs are looked at than are
    placed, and one of each queue.
    """
    left = {worker.id: worker for worker in workers}
    heads: list[_Head] = []
    for number, queue in enumerate(queues):
        _push_next(heads, number, iter(queue))
    while heads and any(worker.has_room for worker in left.values()):
        _, number, job, behind = heapq.heappop(heads)
        placement = place_job(tuple(left.values()), job)
        if placement is None:
            continue
        yield placement
        for node in placement.nodes:
            worker = left[node.worker_id]
            left[node.worker_id] = replace(worker, held=worker.held | set(node.device_ids))
        _push_next(heads, number, behind)


def _push_next(heads: list[_Head], number: int, queue: Iterator[tuple[int, JobView]]) -> None:
    following = next(queue, None)
    if following is not None:
        heapq.heappush(heads, (following[0], number, following[1], queue))


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
            for worker in best_of(fitting, kind, job.nodes)
        )
        return Placement(job_id=job.id, accelerator=kind, nodes=nodes)
    return None
