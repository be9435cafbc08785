"""Artifacts on the worker's disk, by digest: each is fetched once however many tasks want it, and checked whenever it is read."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpulayer.client.artifact_file import file_digest
from gpulayer.errors import Conflict
from gpulayer.protocol import Digest

ABANDONED_SECONDS = 86400.0
"""What a fetch has left whose process was killed; no fetch takes as long."""
_FETCH = "fetch-"


class ArtifactCache:
    """A folder of artifacts. Several tasks, and several workers of one machine, may use it at once.

    Args:
        folder: made if missing.
        fetch: writes the artifact of a digest to a path; may raise what it likes.
    """

    def __init__(self, folder: Path, fetch: Callable[[Digest, Path], None]) -> None:
        self._folder = folder
        self._fetch = fetch
        self._lock = threading.Lock()
        self._fetching: dict[Digest, tuple[threading.Lock, int]] = {}
        self._remove_abandoned(time.time())

    def get(self, sha256: Digest) -> Path:
        """The path of the artifact, fetched if it is not there whole. Blocks while another thread fetches it.

        The file is shared: copy it, don't change it.

        Raises:
            Conflict: what was fetched has another digest.
        """
        path = self._folder / sha256[:2] / sha256
        with self._alone(sha256):
            if path.exists():
                if file_digest(path)[0] == sha256:
                    return path
                path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fetch_to(sha256, path)
            return path

    def _fetch_to(self, sha256: Digest, path: Path) -> None:
        # A folder of its own: whatever a fetch that is killed leaves behind never lies under a digest's name.
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=_FETCH) as folder:
            fetched = Path(folder) / sha256
            self._fetch(sha256, fetched)
            found, _ = file_digest(fetched)
            if found != sha256:
                raise Conflict("An artifact arrived damaged.", asked=sha256, found=found)
            with fetched.open("rb") as file:
                os.fsync(file.fileno())
            fetched.replace(path)

    def _remove_abandoned(self, now: float) -> None:
        for folder in self._folder.glob(f"{_FETCH}*"):
            with contextlib.suppress(FileNotFoundError):  # another worker removes it too
                if folder.stat().st_mtime < now - ABANDONED_SECONDS:
                    shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def _alone(self, sha256: Digest) -> Iterator[None]:
        with self._lock:
            lock, users = self._fetching.get(sha256, (threading.Lock(), 0))
            self._fetching[sha256] = (lock, users + 1)
        try:
            with lock:
                yield
        finally:
            with self._lock:
                lock, users = self._fetching[sha256]
                if users == 1:
                    del self._fetching[sha256]
                else:
                    self._fetching[sha256] = (lock, users - 1)
