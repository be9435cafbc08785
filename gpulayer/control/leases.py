"""When a worker counts as lost, judged from renewal counters and this process's own monotonic time.

Every word from a worker moves its counter in the store. A lease is over only once this control plane has itself watched the
counter stand still for as long as the lease lasts; neither another machine's clock nor a jump of ours loses a live worker.
Pure but for the clock it is given; the store is read and changed by the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gpulayer.control.clock import Clock
from gpulayer.protocol import WorkerId
from gpulayer.settings import BUSY_LEASE_SECONDS, IDLE_LEASE_SECONDS, ORPHAN_LIMIT_SECONDS

LEASE_CHECK_SECONDS = 2.0
"""How often the book is compared with the store; a lost worker is noticed this much after its lease at the latest."""

_LONGEST_STEP_SECONDS = 2 * LEASE_CHECK_SECONDS
# A control plane that was stopped itself (SIGSTOP, a laptop's lid) finds old counters and a clock far ahead, while the
# renewals wait unread in its sockets. So a step between two looks counts for no more than this.


class Lease(NamedTuple):
    """What the store says about one worker.

    Args:
        renewals: moved by every word from this boot of the worker.
        last_seen_at: wall time of its last word.
    """

    worker_id: WorkerId
    boot: str
    renewals: int
    last_seen_at: float


@dataclass(slots=True)
class _Watched:
    lease: Lease
    since: float  # by the book's own time


class LeaseBook:
    """The leases that one control plane watches.

    A look is `begin`, `take` for what was read, and `over`. A worker that nothing is taken of stands still.

    Args:
        clock: its monotonic half judges.
        judge_silent_only: judge by the orphan limit alone, also workers that were heard here.

    Attributes:
        is_current: the last look was taken to its end; where not, the next one has to take everything.
    """

    def __init__(self, clock: Clock, *, judge_silent_only: bool = False) -> None:
        self.is_current = False
        self._clock = clock
        self._judge_silent_only = judge_silent_only
        self._watched: dict[WorkerId, _Watched] = {}  # those that have stood still the longest stand first
        self._heard: set[str] = set()
        self._heard_meanwhile: set[str] = set()  # since the look began; their registration may not be in what it read
        self._seconds = 0.0  # this book's own time: what was watched, step by step
        self._looked_at: float | None = None

    def hear(self, boot: str) -> None:
        """This control plane receives a word from this boot of a worker, and judges it from here on."""
        self._heard.add(boot)
        self._heard_meanwhile.add(boot)

    def heard(self) -> frozenset[str]:
        """The boots that speak to this control plane."""
        return frozenset(self._heard)

    def begin(self) -> None:
        """A look begins; what it takes is read after this."""
        monotonic = self._clock.monotonic()
        self._seconds += 0.0 if self._looked_at is None else min(monotonic - self._looked_at, _LONGEST_STEP_SECONDS)
        self._looked_at = monotonic
        self._heard_meanwhile.clear()
        self.is_current = False

    def take(self, leases: Iterable[Lease]) -> None:
        """What the store says of workers that may have spoken since they were last taken."""
        for lease in leases:
            entry = self._watched.get(lease.worker_id)
            if entry is None or entry.lease.renewals != lease.renewals or entry.lease.boot != lease.boot:
                self._watched.pop(lease.worker_id, None)
                self._watched[lease.worker_id] = _Watched(lease, self._seconds)
            else:
                entry.lease = lease

    def forget(self, worker_ids: Iterable[WorkerId]) -> None:
        """These workers are gone."""
        for worker_id in worker_ids:
            self._watched.pop(worker_id, None)

    def keep_only(self, worker_ids: Collection[WorkerId]) -> None:
        """All workers but these are gone."""
        self.forget(self._watched.keys() - worker_ids)

    def over(self, busy: Collection[str]) -> list[Lease]:
        """End the look: the leases that are over.

        Args:
            busy: the workers that confirmed an attempt which has not ended.
        """
        found = [entry.lease for worker_id in busy if (entry := self._watched.get(WorkerId(worker_id))) and self._is_over(entry, busy=True)]
        for worker_id, entry in self._watched.items():
            if self._still(entry) < IDLE_LEASE_SECONDS:
                break  # and so it is for all behind it
            if worker_id not in busy and self._is_over(entry, busy=False):
                found.append(entry.lease)
        if len(self._heard) > len(self._watched):
            self._heard &= self._heard_meanwhile.union(entry.lease.boot for entry in self._watched.values())
        self.is_current = True
        return found

    def _still(self, entry: _Watched) -> float:
        return self._seconds - entry.since

    def _is_over(self, entry: _Watched, *, busy: bool) -> bool:
        still_seconds = self._still(entry)
        if not self._judge_silent_only:
            if not busy:
                # It confirmed nothing, so nobody's job fails by it, and a placement that it never took up goes elsewhere.
                return still_seconds >= IDLE_LEASE_SECONDS
            if entry.lease.boot in self._heard:
                return still_seconds >= BUSY_LEASE_SECONDS
        # Nobody here ever heard it: it may be waiting for its server to come back, and keeps its job for the orphan limit.
        # Silence from before this process began counts by wall time, but not without a whole lease of watching as well;
        # otherwise processes that live for less than the limit would leave a dead worker's job running for ever.
        silent_before = self._clock.now() - entry.lease.last_seen_at
        return still_seconds >= IDLE_LEASE_SECONDS and max(silent_before, still_seconds) >= ORPHAN_LIMIT_SECONDS
