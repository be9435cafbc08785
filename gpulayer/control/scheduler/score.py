"""Which of the workers that could take a node should. Pure, and the same order for the same view."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from gpulayer.control.scheduler.view import WorkerView

Rank = tuple[int, str, str]


def best_of(workers: Iterable[WorkerView], kind: str, count: int) -> list[WorkerView]:
    """The best so many: the tightest fit first, so that large groups stay whole; then by rank."""
    return heapq.nsmallest(count, workers, key=lambda worker: (len(worker.free(kind)), rank_of(worker)))


def rank_of(worker: WorkerView) -> Rank:
    """Among those that fit equally tightly: CPU work away from machines with accelerators. No two workers have the same."""
    return len(worker.devices), worker.name, worker.id
