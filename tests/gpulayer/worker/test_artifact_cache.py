"""The cache: fetched once, checked on read, nothing half-written under a digest's name."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpulayer.errors import Conflict, ServerUnreachable
from gpulayer.protocol import Digest
from gpulayer.worker.artifact_cache import ArtifactCache

DATA = b"weights" * 1000
SHA256 = Digest(hashlib.sha256(DATA).hexdigest())


class Store:
    def __init__(self) -> None:
        self.fetched = 0
        self.data = DATA
        self.die = 0
        self._lock = threading.Lock()

    def __call__(self, sha256: Digest, destination: Path) -> None:
        with self._lock:
            self.fetched += 1
            dies = self.fetched <= self.die
        destination.write_bytes(self.data[:100] if dies else self.data)
        if dies:
            raise ServerUnreachable("cut in the middle")


def test_sixteen_tasks_fetch_one_artifact_once(tmp_path: Path) -> None:
    store = Store()
    cache = ArtifactCache(tmp_path / "cache", store)
    with ThreadPoolExecutor(16) as pool:
        paths = set(pool.map(lambda _: cache.get(SHA256), range(16)))
    assert store.fetched == 1
    assert [path.read_bytes() for path in paths] == [DATA]


def test_fetches_that_die_leave_nothing_under_the_digest(tmp_path: Path) -> None:
    store = Store()
    store.die = 3
    cache = ArtifactCache(tmp_path / "cache", store)

    def get(_: int) -> str:
        try:
            return hashlib.sha256(cache.get(SHA256).read_bytes()).hexdigest()
        except ServerUnreachable:
            return "died"

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(get, range(16)))
    assert sorted(found) == sorted(["died"] * 3 + [SHA256] * 13)
    assert store.fetched == 4
    assert [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()] == [SHA256]


def test_a_damaged_file_is_noticed_on_read_and_fetched_again(tmp_path: Path) -> None:
    store = Store()
    cache = ArtifactCache(tmp_path / "cache", store)
    cache.get(SHA256).write_bytes(b"damaged")
    assert cache.get(SHA256).read_bytes() == DATA
    assert store.fetched == 2


def test_bytes_with_another_digest_are_refused(tmp_path: Path) -> None:
    store = Store()
    store.data = b"something else"
    with pytest.raises(Conflict, match="damaged"):
        ArtifactCache(tmp_path / "cache", store).get(SHA256)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
