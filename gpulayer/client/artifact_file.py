"""Writing a fetched artifact so that a half-written or damaged one never lies under its name."""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections.abc import Iterable
from pathlib import Path

from gpulayer.errors import InternalError
from gpulayer.protocol import Digest


def write_artifact(destination: Path, sha256: Digest, parts: Iterable[bytes]) -> None:
    """Write the parts beside `destination`, check their digest, and only then let the file appear under its name.

    Raises:
        InternalError: the bytes have another digest.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    partial = destination.parent / f".gpulayer-{uuid.uuid4().hex}"
    try:
        digest = hashlib.sha256()
        with partial.open("xb") as file:
            for part in parts:
                digest.update(part)
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != sha256:
            raise InternalError(
                "An artifact arrived damaged: its digest is another.", asked=sha256, found=digest.hexdigest(), fix="Fetch it again."
            )
        partial.replace(destination)
    finally:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
