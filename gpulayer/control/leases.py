"""When a worker counts as lost, judged from renewal counters and this process's own monotonic time.

Every word from a worker moves its counter in the store. A lease is over only once this control plane has itself watched the
counter stand still for as long as the lease lasts; neither another machine's clock nor a jump of ours loses a live worker.
Pure but for the clock it is given; the store is read and changed by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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
_SHORTEST_SECONDS = min(BUSY_LEASE_SECONDS, IDLE_LEASE_SECONDS)


class Lease(NamedTuple):
    """What the store says about one worker.

    Args:
        renewals: moved by every word from this boot of the worker.
        last_seen_at: wall time of its last word.
        busy: the worker confirmed an attempt that has not ended.
    """

    worker_id: WorkerId
    boot: str
    renewals: int
    last_seen_at: float
    busy: bool


@dataclass(slots=True)
class _Watched:
    renewals: int
    still_seconds: float = 0.0


class LeaseBook:
    """The leases that one control plane watches.

    Args:
        clock: its monotonic half judges.
        judge_silent_only: judge by the orphan limit alone, also workers that were heard here.
    """

    def __init__(self, clock: Clock, *, judge_silent_only: bool = False) -> None:
        self._clock = clock
        self._judge_silent_only = judge_silent_only
        self._watched: dict[tuple[WorkerId, str], _Watched] = {}
        self._heard: set[str] = set()
        self._looked_at: float | None = None

    def hear(self, boot: str) -> None:
        """This control plane receives a word from this boot of a worker, and judges it from here on."""
        self._heard.add(boot)

    def heard(self) -> frozenset[str]:
        """The boots that speak to this control plane."""
        return frozenset(self._heard)

    @contextmanager
    def look(self) -> Iterator[Callable[[Iterable[Lease]], list[Lease]]]:
        """Compare with what the store says, over as many pages as it is read in; the function says which of a page are over.

        A worker is on one page; one that is on none is forgotten at the end of the block.
        """
        monotonic = self._clock.monotonic()
        step = 0.0 if self._looked_at is None else min(monotonic - self._looked_at, _LONGEST_STEP_SECONDS)
        self._looked_at = monotonic
        heard_before = self.heard()  # who speaks for the first time meanwhile may have missed its page
        watched: dict[tuple[WorkerId, str], _Watched] = {}

        def over(leases: Iterable[Lease]) -> list[Lease]:
            found: list[Lease] = []
            for lease in leases:
                key = (lease.worker_id, lease.boot)
                entry = self._watched.get(key)
                if entry is None or entry.renewals != lease.renewals:
                    entry = _Watched(renewals=lease.renewals)
                else:
                    entry.still_seconds += step
                watched[key] = entry
                if entry.still_seconds >= _SHORTEST_SECONDS and self._is_over(lease, entry):
                    found.append(lease)
            return found

        yield over
        self._watched = watched
        self._heard -= heard_before.difference(boot for _, boot in watched)

    def lost(self, leases: Iterable[Lease]) -> list[Lease]:
        """The leases that are over, by one look at all of them."""
        with self.look() as over:
            return over(leases)

    def _is_over(self, lease: Lease, entry: _Watched) -> bool:
        if not self._judge_silent_only:
            if not lease.busy:
                # It confirmed nothing, so nobody's job fails by it, and a placement that it never took up goes elsewhere.
                return entry.still_seconds >= IDLE_LEASE_SECONDS
            if lease.boot in self._heard:
                return entry.still_seconds >= BUSY_LEASE_SECONDS
        # Nobody here ever heard it: it may be waiting for its server to come back, and keeps its job for the orphan limit.
        # Silence from before this process began counts by wall time, but not without a whole lease of watching as well;
        # otherwise processes that live for less than the limit would leave a dead worker's job running for ever.
        silent_before = self._clock.now() - lease.last_seen_at
        return entry.still_seconds >= IDLE_LEASE_SECONDS and max(silent_before, entry.still_seconds) >= ORPHAN_LIMIT_SECONDS
