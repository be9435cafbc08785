"""Which workers can hold a job, which of them one job gets, and why a job waits: each by a look at every worker. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from gpulayer.control.scheduler.score import best_of
from gpulayer.control.scheduler.view import AUTO, KINDS_BEST_FIRST, JobView, NodePlacement, Placement, View, WorkerView
from gpulayer.states import WaitingReason

LISTED_WORKERS = 20
"""So many are named in a reason: each record of a waiting job carries it."""


class Reason(NamedTuple):
    """Why a job is not placed: a code, and words for the person who submitted it."""

    code: WaitingReason
    words: str


def kinds_for(job: JobView) -> tuple[str, ...]:
    """The accelerators that may serve this job, best first."""
    if job.accelerator != AUTO:
        return (job.accelerator,)
    one_process = job.devices == 1 and job.nodes == 1  # MPS drives one device in one process (ADR-0006)
    return tuple(kind for kind in KINDS_BEST_FIRST if kind != "mps" or one_process)


def suitable_workers(workers: Iterable[WorkerView], job: JobView) -> tuple[WorkerView, ...]:
    """Workers that take work and report all that the job requires."""
    return tuple(worker for worker in workers if not worker.draining and job.requires <= worker.provides)


def groups(workers: Sequence[WorkerView], job: JobView) -> list[tuple[WorkerView, ...]]:
    """Sets of workers out of which all nodes may be taken, the closest together first.

    Ranks of several nodes must reach each other: workers of one host always do, and workers of several hosts where none is
    known by a loopback address.
    """
    if job.nodes == 1:
        return [tuple(workers)]
    by_host: dict[str, list[WorkerView]] = {}
    for worker in workers:
        by_host.setdefault(worker.host, []).append(worker)
    found = [tuple(of_host) for _, of_host in sorted(by_host.items())]
    found.append(tuple(worker for worker in workers if not worker.loopback))
    return [group for group in found if len(group) >= job.nodes]


def could_hold(group: Iterable[WorkerView], job: JobView, kind: str) -> bool:
    """Whether the job would fit if everything on these workers were free."""
    large_enough = (worker for worker in group if len(worker.of_kind(kind)) >= job.devices)
    return next(islice(large_enough, job.nodes - 1, None), None) is not None


def chosen_kind(workers: Sequence[WorkerView], job: JobView) -> str | None:
    """The best accelerator with which these workers could hold the job, busy or not; None where none could."""
    suitable = suitable_workers(workers, job)
    candidates = groups(suitable, job)
    return next((kind for kind in kinds_for(job) if any(could_hold(group, job, kind) for group in candidates)), None)


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


def why_waiting(view: View, job: JobView) -> Reason:
    """Why the job is not placed."""
    if not view.workers:
        return Reason("no_worker", "no worker yet: start one with `gpulayer worker start`")
    needs = f"needs {job.demand()}"
    if all(worker.draining for worker in view.workers):
        return Reason("draining", f"{needs}; every worker is draining")
    suitable = suitable_workers(view.workers, job)
    if not suitable:
        lacks = "it" if len(job.requires) == 1 else "all of that"
        return Reason("requires", f"needs {', '.join(sorted(job.requires))}; no worker provides {lacks}")
    kind = chosen_kind(view.workers, job)
    if kind is None:
        return _why_none_could(suitable, job)
    free = [(len(worker.free(kind)), worker.name) for worker in sorted(suitable, key=lambda worker: (worker.name, worker.id))]
    listed = _listed([f"{count} on {name}" for count, name in free if count]) or "none"
    return Reason(
        "busy", f"needs {job.devices} × {kind}" + (f" on each of {job.nodes} nodes" if job.nodes > 1 else "") + f"; free: {listed}"
    )


def _why_none_could(suitable: Sequence[WorkerView], job: JobView) -> Reason:
    needs = f"needs {job.demand()}"
    kind = next((kind for kind in kinds_for(job) if could_hold(suitable, job, kind)), None)
    if kind is not None:
        # Enough of them are alive; they only cannot reach each other.
        names = _listed(sorted(worker.name for worker in suitable if worker.loopback))
        alone = "can be reached from the own host only (through a tunnel?): start it with --address to join several nodes"
        return Reason("apart", f"{needs}; {names} {alone}")
    offered = {(len(worker.of_kind(kind)), kind) for worker in suitable for kind in kinds_for(job)}
    sizes = sorted(((size, kind) for size, kind in offered if size), reverse=True)
    if not sizes:
        return Reason("too_small", f"{needs}; no worker has any")
    largest, kind = sizes[0]
    enough = sum(len(worker.of_kind(kind)) >= job.devices for worker in suitable)
    if largest < job.devices:
        return Reason("too_small", f"{needs}; the largest worker has {largest} × {kind}")
    return Reason("too_few", f"{needs}; {enough} " + ("worker has" if enough == 1 else "workers have") + " that many")


def _listed(items: list[str]) -> str:
    rest = len(items) - LISTED_WORKERS
    return ", ".join(items[:LISTED_WORKERS]) + (f" and {rest} more" if rest > 0 else "")
