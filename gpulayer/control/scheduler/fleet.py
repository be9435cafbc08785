"""The living workers of one view, kept in the order in which they are given out, so that a decision reads a few of them.

A `Fleet` follows changes worker by worker and answers as `feasible.chosen_kind` and `place.place_job` do over all of its
workers. Pure: whoever keeps one tells it what changed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpulayer.control.scheduler.feasible import chosen_kind, kinds_for, place_job
from gpulayer.control.scheduler.score import Rank, rank_of
from gpulayer.control.scheduler.view import JobView, NodePlacement, Placement, WorkerView

FEW_WORKERS = 32
"""As many are looked at one by one sooner than an order of them is made and kept."""
MOST_SHELVES = 16
"""So many sets of requirements are kept in order; a fleet is asked for few, and each costs a little with every change."""


class Fleet:
    """Workers that take work or drain, by what decisions ask for."""

    def __init__(self, workers: Iterable[WorkerView] = ()) -> None:
        self._workers: dict[str, WorkerView] = {}
        self._providing: dict[str, set[str]] = {}  # what is provided → ids; of those that take work
        self._shelves: OrderedDict[frozenset[str], _Shelf] = OrderedDict()  # the one asked for last stands last
        self._with_room = 0
        for worker in workers:
            self.put(worker)

    @property
    def workers(self) -> tuple[WorkerView, ...]:
        """All of them, draining ones too."""
        return tuple(self._workers.values())

    @property
    def has_room(self) -> bool:
        """Whether any device is free on a worker that takes work."""
        return self._with_room > 0

    def provides(self, requires: frozenset[str]) -> bool:
        """Whether some worker that takes work provides all this."""
        if not requires:
            return any(not worker.draining for worker in self._workers.values())
        rarest, *others = sorted((self._providing.get(name, _NOBODY) for name in requires), key=len)
        return any(all(worker_id in other for other in others) for worker_id in rarest)

    def put(self, worker: WorkerView) -> None:
        """This worker is there, or is otherwise than before."""
        if self._workers.get(worker.id) == worker:
            return
        self.remove(worker.id)
        self._workers[worker.id] = worker
        if worker.draining:
            return
        self._with_room += worker.has_room
        for name in worker.provides:
            self._providing.setdefault(name, set()).add(worker.id)
        for requires, shelf in self._shelves.items():
            if requires <= worker.provides:
                shelf.add(worker)

    def remove(self, worker_id: str) -> None:
        """This worker is not there; one that never was is no error."""
        worker = self._workers.pop(worker_id, None)
        if worker is None or worker.draining:
            return
        self._with_room -= worker.has_room
        for name in worker.provides:
            providing = self._providing[name]
            providing.discard(worker_id)
            if not providing:
                del self._providing[name]
        for requires, shelf in self._shelves.items():
            if requires <= worker.provides:
                shelf.discard(worker)

    def hold(self, placement: Placement) -> None:
        """The devices of this placement are held."""
        for node in placement.nodes:
            worker = self._workers[node.worker_id]
            self.put(replace(worker, held=worker.held | set(node.device_ids)))

    def chosen_kind(self, job: JobView) -> str | None:
        """The best accelerator with which these workers could hold the job, busy or not; None where none could."""
        candidates = self._candidates(job.requires)
        return candidates.chosen_kind(job) if isinstance(candidates, _Shelf) else chosen_kind(candidates, job)

    def place_job(self, job: JobView) -> Placement | None:
        """Where this one job goes, or None while it has to wait."""
        candidates = self._candidates(job.requires)
        return candidates.place_job(job) if isinstance(candidates, _Shelf) else place_job(candidates, job)

    def _candidates(self, requires: frozenset[str]) -> _Shelf | tuple[WorkerView, ...]:
        """The workers that provide all this, and maybe others while they are few."""
        rarest = min((self._providing.get(name, _NOBODY) for name in requires), key=len, default=None)
        if rarest is not None and len(rarest) <= FEW_WORKERS:
            return tuple(self._workers[worker_id] for worker_id in rarest)
        shelf = self._shelves.get(requires)
        if shelf is None:
            shelf = self._shelves[requires] = _Shelf()
            for worker in self._workers.values() if rarest is None else map(self._workers.__getitem__, rarest):
                if not worker.draining and requires <= worker.provides:
                    shelf.add(worker)
            if len(self._shelves) > MOST_SHELVES:
                self._shelves.popitem(last=False)
        self._shelves.move_to_end(requires)
        return shelf


class _Shelf:
    """Workers that all meet one set of requirements: together, by host, and those that every host reaches."""

    __slots__ = ("_all", "_hosts", "_open")

    def __init__(self) -> None:
        self._all, self._open = _Group(), _Group()
        self._hosts: dict[str, _Group] = {}

    def add(self, worker: WorkerView) -> None:
        for group in self._groups_of(worker):
            group.add(worker)

    def discard(self, worker: WorkerView) -> None:
        for group in self._groups_of(worker):
            group.discard(worker)
        if not self._hosts[worker.host].count:
            del self._hosts[worker.host]

    def chosen_kind(self, job: JobView) -> str | None:
        candidates = list(self._groups(job.nodes))
        return next((kind for kind in kinds_for(job) if any(group.could_hold(job, kind) for group in candidates)), None)

    def place_job(self, job: JobView) -> Placement | None:
        kind = self.chosen_kind(job)
        if kind is None:
            return None
        found = next((nodes for group in self._groups(job.nodes) if (nodes := group.best_of(job, kind))), None)
        return None if found is None else Placement(job_id=job.id, accelerator=kind, nodes=found)

    def _groups_of(self, worker: WorkerView) -> tuple[_Group, ...]:
        of_host = self._hosts.setdefault(worker.host, _Group())
        return (self._all, of_host) if worker.loopback else (self._all, of_host, self._open)

    def _groups(self, nodes: int) -> Iterator[_Group]:
        """Groups out of which all nodes may be taken, in the order of `feasible.groups`."""
        if nodes == 1:
            yield self._all
            return
        for host in sorted(host for host, group in self._hosts.items() if group.count >= nodes):
            yield self._hosts[host]
        yield self._open


class _Group:
    """Some workers, by how many devices of a kind they have and how many of those are free."""

    __slots__ = ("_free", "_sizes", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sizes: dict[str, Counter[int]] = {}
        self._free: dict[str, dict[int, list[tuple[Rank, WorkerView]]]] = {}  # kind → how many are free → in order

    def add(self, worker: WorkerView) -> None:
        self.count += 1
        for kind, size, free in worker.counts():
            self._sizes.setdefault(kind, Counter())[size] += 1
            if free:
                insort(self._free.setdefault(kind, {}).setdefault(free, []), (rank_of(worker), worker), key=_rank)

    def discard(self, worker: WorkerView) -> None:
        self.count -= 1
        rank = rank_of(worker)
        for kind, size, free in worker.counts():
            sizes = self._sizes[kind]
            sizes[size] -= 1
            if not sizes[size]:
                del sizes[size]
            if free:
                ordered = self._free[kind][free]
                del ordered[bisect_left(ordered, rank, key=_rank)]
                if not ordered:
                    del self._free[kind][free]

    def could_hold(self, job: JobView, kind: str) -> bool:
        """Whether the job would fit if everything on these workers were free."""
        return sum(count for size, count in self._sizes.get(kind, _NO_SIZES).items() if size >= job.devices) >= job.nodes

    def best_of(self, job: JobView, kind: str) -> tuple[NodePlacement, ...] | None:
        """The nodes of this job on the workers that `score.best_of` would take; None where they do not fit."""
        found: list[NodePlacement] = []
        by_free = self._free.get(kind, {})
        for free in sorted(free for free in by_free if free >= job.devices):
            for _, worker in by_free[free][: job.nodes - len(found)]:
                given = worker.free(kind)[: job.devices]
                found.append(NodePlacement(worker_id=worker.id, device_ids=tuple(device.id for device in given)))
            if len(found) == job.nodes:
                return tuple(found)
        return None


_NOBODY: frozenset[str] = frozenset()
_NO_SIZES: Counter[int] = Counter()


def _rank(entry: tuple[Rank, WorkerView]) -> Rank:
    return entry[0]
