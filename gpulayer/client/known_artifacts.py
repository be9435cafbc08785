"""What control planes have said that they hold, by address, for as long as this process lives: it need not be sent again.

It spares an upload, or the question before it. Only `submit` relies on it, whose refusal brings out that a control plane has
lost what it had; what a worker stores is always sent to be stored. Runs in the client.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from gpulayer.protocol import Digest

MOST_KNOWN = 10_000
"""Digests, together some 2 MB; more are forgotten all at once, which costs one upload each."""

# Without a lock: each step is one operation on the dictionary, and a fork never finds a lock that is held.
_known: dict[tuple[str, Digest], None] = {}


class Store(Protocol):
    """Where artifacts are put."""

    def put_artifact(self, path: Path, sha256: Digest) -> None:
        """Store the file under its digest."""


class KnownArtifacts:
    """Stores artifacts for one submit, but for those that this control plane is known to hold.

    Args:
        store: the transport to the control plane; one without a `url` is asked each time, as it is in this process.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._url: str | None = getattr(store, "url", None)
        self._relied: set[Digest] = set()

    def put_artifact(self, path: Path, sha256: Digest) -> None:
        """Store the file under its digest, unless it is known to be there."""
        if self._url is not None and (self._url, sha256) in _known:
            self._relied.add(sha256)
            return
        self._store.put_artifact(path, sha256)
        if self._url is not None:
            if len(_known) >= MOST_KNOWN:
                _known.clear()
            _known[self._url, sha256] = None

    def forget(self) -> bool:
        """Forget what was not sent; False where everything was, and sending it once more would change nothing."""
        relied, self._relied = self._relied, set()
        for sha256 in relied:
            _known.pop((self._url or "", sha256), None)
        return bool(relied)
