"""When a job's client counts as gone: judged as a worker's lease is (`leases`), by a counter that stands still while this watches.

A control plane that begins to watch gives every lease its whole length anew: while it was away nobody could renew. Pure but for its
clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpulayer.control.clock import Clock
from gpulayer.control.leases import LEASE_CHECK_SECONDS
from gpulayer.control.store.client_leases import ClientLease
from gpulayer.protocol import JobId

SHORTEST_LEASE_SECONDS = 5.0
LONGEST_LEASE_SECONDS = 3600.0
_LONGEST_STEP_SECONDS = 2 * LEASE_CHECK_SECONDS  # one that was stopped itself finds its clock far ahead, and renewals unread


@dataclass(slots=True)
class _Watched:
    renewals: int
    still_seconds: float


class ClientLeaseBook:
    """The client leases that one control plane watches.

    Args:
        clock: its monotonic half judges.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watched: dict[JobId, _Watched] = {}
        self._looked_at: float | None = None

    def over(self, leases: Iterable[ClientLease]) -> list[JobId]:
        """Look at all leases of unfinished jobs; the jobs whose client was not heard for as long as its lease."""
        now = self._clock.monotonic()
        step = 0.0 if self._looked_at is None else min(now - self._looked_at, _LONGEST_STEP_SECONDS)
        self._looked_at = now
        watched: dict[JobId, _Watched] = {}
        found = []
        for lease in leases:
            before = self._watched.get(lease.job_id)
            still = before.still_seconds + step if before is not None and before.renewals == lease.renewals else 0.0
            watched[lease.job_id] = _Watched(lease.renewals, still)
            if still >= lease.seconds:
                found.append(lease.job_id)
        self._watched = watched
        return found
