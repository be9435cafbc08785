"""The signal on which a rank writes what its threads are doing, without their help: a rank in a collective runs no Python.

Registered by the rank (`rank_main`), sent by the agent (`task_stacks.py`).
"""

from __future__ import annotations

import faulthandler
import os
import signal

# A real-time signal: SIGUSR1 and SIGUSR2 are what scripts, Slurm and Lightning use. macOS has none; there no stacks are told.
STACK_SIGNAL: int | None = getattr(signal, "SIGRTMAX", None)
if STACK_SIGNAL is not None:
    STACK_SIGNAL -= 3


def offer_stacks() -> int | None:
    """In a rank: have its stacks written into a pipe at each such signal; returns the reading end, which the caller closes."""
    if STACK_SIGNAL is None:
        return None
    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # whoever does not read shall not hold up the rank
    faulthandler.register(STACK_SIGNAL, file=writer, all_threads=True)
    return reader
