"""Environments that jobs bring requirements for: built on top of the worker's own packages, once, and kept by what they are made of.

A folder each below `WORK_DIR/environments`, with a lock beside it that users share and builders have alone. What has no mark of
its end is never used: whoever has the lock next removes it. Runs in the agent.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gpulayer.errors import Interrupted
from gpulayer.protocol import Digest
from gpulayer.worker.environment_build import build_environment
from gpulayer.worker.interpreter_facts import FactsOfInterpreters, InterpreterFacts
from gpulayer.worker.workspace import remove_tree

MOST_ENVIRONMENTS = 20
"""How many are kept: beyond that the ones that were used least lately go, but for those in use."""
LOOK_SECONDS = 0.2
"""How soon a task sees that another process has finished building, or that it is to stop."""
_READY = "ready"
_LOCK = ".lock"
_REMOVED = "removed-"
_FORMAT = "1"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One that is whole. It stays while its user does.

    Args:
        python: its interpreter.
        folder: where it lies.
        build_seconds: what building it took; None where it lay ready.
    """

    python: str
    folder: Path
    build_seconds: float | None


class EnvironmentCache:
    """The environments of this machine's workers that share a folder. Thread-safe, and safe against other processes.

    Args:
        folder: made if missing.
        python: the worker's interpreter, on which they are based.
        environment: what installers are run with.
        interpreters: knows what that interpreter has.
        most: how many are kept.
    """

    def __init__(
        self,
        folder: Path,
        python: str,
        environment: dict[str, str],
        interpreters: FactsOfInterpreters,
        *,
        most: int = MOST_ENVIRONMENTS,
    ) -> None:
        self._folder = folder
        self._python = python
        self._environment = environment
        self._interpreters = interpreters
        self._most = most

    @contextlib.contextmanager
    def use(self, digest: Digest, requirements: Path, *, stopped: threading.Event, say: Callable[[str], None]) -> Iterator[Environment]:
        """The environment of this text, for the time of the context; built if it is not there. Blocks while anybody builds it.

        Args:
            digest: of the text.
            requirements: where it lies.
            stopped: set when it is not wanted any more.
            say: told in a line what takes its time.

        Raises:
            Interrupted: it is not wanted any more.
            Unsupported: it can't be built; naming the requirement and what the installer said.
            OSError: the disk is full, or not ours.
        """
        facts = self._interpreters.of(self._python)
        key = environment_key(digest, self._python, facts)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = self._folder / key
        lock = _open_lock(self._lock_path(key))
        try:
            build_seconds = self._see_to(folder, lock, requirements, facts, stopped, say)
            with contextlib.suppress(OSError):
                os.utime(folder / _READY)  # when it was used last
            self._remove_surplus(keep=key)
            yield Environment(python=str(folder / "bin" / "python"), folder=folder, build_seconds=build_seconds)
        finally:
            lock.close()

    def _see_to(
        self,
        folder: Path,
        lock: IO[bytes],
        requirements: Path,
        facts: InterpreterFacts,
        stopped: threading.Event,
        say: Callable[[str], None],
    ) -> float | None:
        """Have a shared lock on a folder that is whole; returns how long building took, if it had to be built here."""
        build_seconds = None
        while True:
            _lock(lock, fcntl.LOCK_SH, stopped)
            if (folder / _READY).exists():
                return build_seconds
            _unlock(lock)
            _lock(lock, fcntl.LOCK_EX, stopped)
            if not (folder / _READY).exists():  # nobody was faster
                begun_at = time.monotonic()
                say("Building the environment of the job's requirements.")
                self._build(folder, lock, requirements, facts, stopped)
                build_seconds = time.monotonic() - begun_at
            # Another may remove it between the two locks, however unlikely: then it is built again.
            _unlock(lock)

    def _build(self, folder: Path, lock: IO[bytes], requirements: Path, facts: InterpreterFacts, stopped: threading.Event) -> None:
        _discard(folder)
        try:
            build_environment(
                folder,
                requirements,
                python=self._python,
                facts=facts,
                environment=self._environment,
                stopped=stopped,
                # An installer that outlives this process goes on writing: until it ends, nobody else builds here.
                held=lock,
            )
            mark = folder / f"{_READY}-unnamed"
            mark.touch()
            mark.rename(folder / _READY)
        except BaseException:
            _discard(folder)
            raise

    def _remove_surplus(self, *, keep: str) -> None:
        """Remove what nobody uses: what is left of broken-off work, then whole environments, the least lately used first."""
        unfinished, ready = [], []
        for entry in self._folder.iterdir():
            if entry.name.startswith(_REMOVED):
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.suffix != _LOCK:
                try:
                    ready.append((entry.joinpath(_READY).stat().st_mtime, entry.name))
                except OSError:
                    unfinished.append(entry.name)
        surplus = [key for _, key in sorted(ready)[: max(0, len(ready) - self._most)]]
        for key in (*unfinished, *surplus):
            if key == keep:
                continue
            with _open_lock(self._lock_path(key)) as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # somebody uses it
                _log.info("removing an environment that nobody uses: %s", key)
                _discard(self._folder / key)

    def _lock_path(self, key: str) -> Path:
        return self._folder / f"{key}{_LOCK}"


def environment_key(digest: Digest, python: str, facts: InterpreterFacts) -> str:
    """What an environment is made of: the text, and the interpreter with its version, on whose packages it rests."""
    parts = (_FORMAT, digest, os.path.abspath(python), facts.python, facts.tag)  # noqa: PTH100 - links stay: a venv's python is one
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _open_lock(path: Path) -> IO[bytes]:
    # Never removed: whoever waits for a lock on a file that is gone would wait for nobody.
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")


def _lock(file: IO[bytes], kind: int, stopped: threading.Event) -> None:
    while not stopped.is_set():
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            stopped.wait(LOOK_SECONDS)
        else:
            return
    raise Interrupted("The environment is not wanted any more.")


def _unlock(file: IO[bytes]) -> None:
    fcntl.flock(file, fcntl.LOCK_UN)


def _discard(folder: Path) -> None:
    """Remove an environment: its mark first, so that whatever remains of it is never taken for whole."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        (folder / _READY).unlink()
    if not folder.exists():
        return
    gone = folder.with_name(f"{_REMOVED}{uuid.uuid4().hex}")
    folder.rename(gone)
    with contextlib.suppress(OSError):  # another process may be at it as well; what stays is tried again
        remove_tree(gone)
