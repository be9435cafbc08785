"""What the disk is told while a large file is being written, so that its sync at the end has little left to wait for.

Pure of any protocol, for every layer; nothing here promises that bytes are kept: only a sync does.
"""

from __future__ import annotations

import os

STRIDE_BYTES = 8 * 1024 * 1024


def begin_writing_back(descriptor: int, start: int, end: int) -> None:
    """Have the disk begin with the full strides that end in these bytes of the file, which were written just now.

    Without it a system keeps them in memory, and the sync of a large file then takes as long as all that came before.
    """
    if not hasattr(os, "posix_fadvise"):
        return  # macOS has none: there the sync does it all
    first, last = start // STRIDE_BYTES * STRIDE_BYTES, end // STRIDE_BYTES * STRIDE_BYTES
    if first < last:
        os.posix_fadvise(descriptor, first, last - first, os.POSIX_FADV_DONTNEED)
