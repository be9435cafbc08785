"""The cache: fetched once, checked on read, nothing half-written under a digest's name."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
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


# Reads its artifact at a gate that all of them pass together; the first are killed with half of it written.
FETCHING = """
import os, shutil, signal, sys
from pathlib import Path
from gpulayer.worker.artifact_cache import ArtifactCache

cache, source, number = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

def fetch(sha256, destination):
    with destination.open("wb") as file:
        data = source.read_bytes()
        file.write(data[: len(data) // 2])
        file.flush()
        print("halfway", flush=True)
        sys.stdin.readline()
        if number < 3:
            os.kill(os.getpid(), signal.SIGKILL)
        file.write(data[len(data) // 2 :])

print(shutil.copy(ArtifactCache(cache, fetch).get(source.name), cache.parent / f"got-{number}"), flush=True)
"""


def test_sixteen_processes_fetch_while_three_of_them_are_killed(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000
    digest = Digest(hashlib.sha256(data).hexdigest())
    source = tmp_path / digest
    source.write_bytes(data)
    folder = tmp_path / "cache"
    argv = [sys.executable, "-c", FETCHING, str(folder), str(source)]
    running = [
        subprocess.Popen([*argv, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for number in range(16)
    ]
    for one in running:
        assert one.stdout is not None
        assert one.stdout.readline() == "halfway\n"
    assert [path for path in folder.rglob(digest) if path.parent.name == digest[:2]] == []
    said = [one.communicate("on\n", timeout=60) for one in running]
    assert [one.returncode for one in running] == [-9] * 3 + [0] * 13, said
    for number in range(3, 16):
        assert (tmp_path / f"got-{number}").read_bytes() == data
    cache = ArtifactCache(folder, Store())
    assert cache.get(digest).read_bytes() == data
    left = sorted(folder.glob("fetch-*"))
    assert len(left) == 3
    for path in left[:2]:
        os.utime(path, (0, 0))
    ArtifactCache(folder, Store())
    assert list(folder.glob("fetch-*")) == left[2:]  # it may be another worker's that fetches at the moment
