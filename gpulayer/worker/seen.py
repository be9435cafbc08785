"""Which attempts a worker has taken up already. Runs in the agent."""

from __future__ import annotations

from gpulayer.protocol import AttemptRef

REMEMBERED_ATTEMPTS = 10_000
"""An answer that was under way for as long as it takes to run so many would start one again."""


class SeenAttempts:
    """The newest attempts that were taken up, so that a repeated assignment is not taken up twice. Not thread-safe."""

    def __init__(self) -> None:
        self._refs: dict[AttemptRef, None] = {}  # oldest first

    def add(self, ref: AttemptRef) -> bool:
        """Take note of an attempt; False when it has been seen before."""
        if ref in self._refs:
            return False
        self._refs[ref] = None
        if len(self._refs) > REMEMBERED_ATTEMPTS:
            del self._refs[next(iter(self._refs))]
        return True
