"""How much a job's output may send to the front end: in proportion to what its ranks print, not to how often they do.

An update of a display carries the display's whole text. Runs in the kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable

START_BYTES = 48 * 1024
"""What may be sent before anything was printed."""
BYTES_A_SECOND = 1024.0
"""So that also a job that prints little is seen to go on."""


class TrafficBudget:
    """What was sent never exceeds what was printed, but for a constant and a trickle.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._sent = 0

    def spend(self, size: int) -> None:
        """So much was sent."""
        self._sent += size

    def left(self, printed: int) -> float:
        """How much may be sent, after so much was printed; below 0 where more was sent than that."""
        return START_BYTES + printed + (self._clock() - self._began) * BYTES_A_SECOND - self._sent

    def seconds_until(self, size: int, printed: int) -> float:
        """When so much may be sent, if nothing is printed until then."""
        return max(0.0, (size - self.left(printed)) / BYTES_A_SECOND)
