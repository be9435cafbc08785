"""An artifact as a file on this side: sent in parts, and written so that a damaged one never lies under its name."""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from gpulayer.errors import Conflict, InternalError
from gpulayer.protocol import Digest
from gpulayer.settings import ARTIFACT_PART_BYTES


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


def send_parts(path: Path, send: Callable[[bytes, int, int], None], *, part_bytes: int = ARTIFACT_PART_BYTES) -> None:
    """Send the file in parts, in order: `send(data, offset, total)`. An empty file is one empty part.

    Where the control plane has less than was sent (it was restarted on another disk, or the upload expired), this goes
    back to what it has, once.
    """
    total = path.stat().st_size
    offset = 0
    went_back = False
    with path.open("rb") as file:
        while True:
            file.seek(offset)
            data = file.read(part_bytes)
            try:
                send(data, offset, total)
            except Conflict as error:
                stored = error.details.get("offset")
                if went_back or not isinstance(stored, int) or not 0 <= stored <= offset:
                    raise
                went_back = True
                offset = stored
                continue
            offset += len(data)
            if offset >= total:
                return
            if not data:
                raise InternalError("A file became shorter while it was sent.", asked=str(path), fix="Send it again.")
