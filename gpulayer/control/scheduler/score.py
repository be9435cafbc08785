"""Which of the workers that could take a node should. Pure, and the same order for the same view."""

from __future__ import annotations

from collections.abc import Iterable

from gpulayer.control.scheduler.view import WorkerView


def best_first(workers: Iterable[WorkerView], kind: str) -> list[WorkerView]:
    """The tightest fit first, so that large groups stay whole; then CPU work away from machines with accelerators."""
    return sorted(workers, key=lambda worker: (len(worker.free(kind)), len(worker.devices), worker.name, worker.id))
