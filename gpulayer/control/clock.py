"""The two clocks of a control plane, in one object so that tests can hold them still.

Wall time is only written down and shown; whether a worker is lost is judged by monotonic time alone.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """UTC seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never jump; they mean nothing outside this process."""


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()
