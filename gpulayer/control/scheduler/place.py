"""Where the waiting jobs go. Pure: the caller commits the answer, or not.

All nodes of a job at once or none, on different workers, whole devices by id. A job that does not fit does not hold up the
jobs behind it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from gpulayer.control.scheduler.fleet import Fleet
from gpulayer.control.scheduler.view import JobView, Placement, View

_Head = tuple[int, int, JobView, Iterator[tuple[int, JobView]]]
"""The first of a queue: its place in the order of all, the queue's number (so that no two are equal), and what is behind it."""


def place(view: View) -> list[Placement]:
    """The placements of every job that fits, each one seeing the devices that those before it took."""
    queues: dict[tuple[object, ...], list[tuple[int, JobView]]] = {}
    for order, job in enumerate(view.jobs):
        queues.setdefault((job.nodes, job.devices, job.accelerator, job.requires), []).append((order, job))
    return list(place_queues(Fleet(view.workers), queues.values()))


def place_queues(fleet: Fleet, queues: Iterable[Iterable[tuple[int, JobView]]]) -> Iterator[Placement]:
    """As `place`, for jobs in one queue for each demand, each job with its place in the order of all.

    What is placed is held in the fleet.

    Once one of a queue does not fit, none behind it does: what is free only shrinks. So no more jobs are looked at than are
    placed, and one of each queue.
    """
    heads: list[_Head] = []
    for number, queue in enumerate(queues):
        _push_next(heads, number, iter(queue))
    while heads and fleet.has_room:
        _, number, job, behind = heapq.heappop(heads)
        placement = fleet.place_job(job)
        if placement is None:
            continue
        fleet.hold(placement)
        yield placement
        _push_next(heads, number, behind)


def _push_next(heads: list[_Head], number: int, queue: Iterator[tuple[int, JobView]]) -> None:
    following = next(queue, None)
    if following is not None:
        heapq.heappush(heads, (following[0], number, following[1], queue))
