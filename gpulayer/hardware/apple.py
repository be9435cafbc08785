"""The GPU of Apple silicon, which torch drives as `mps`. Runs in the agent."""

from __future__ import annotations

import os
import platform

from gpulayer.protocol import Device


def find_mps_devices() -> tuple[Device, ...]:
    """The one MPS device of a Mac with Apple silicon, else none. Its memory is the machine's."""
    if (platform.system(), platform.machine()) != ("Darwin", "arm64"):
        return ()
    return (
        Device(
            id="mps:0", accelerator="mps", index=0, name="Apple GPU", memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        ),
    )
