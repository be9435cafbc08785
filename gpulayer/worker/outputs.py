"""Finds what a job left in its `output/` and stores it, a few files at a time. Runs in the agent.

What can't be stored is left out by itself and named for the job's log; the rest goes on.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from gpulayer.client.artifact_file import file_digest
from gpulayer.protocol import Digest, OutputFile

_THREADS = 4
_NAMED = 20
"""So many of the files that are left out are named; the others are counted."""

_SHOWN_LETTERS = 300


class LeftOut:
    """Says which outputs are left out and why. Thread-safe."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._count = 0

    def add(self, path: str, why: str) -> None:
        with self._lock:
            self._count += 1
            if self._count <= _NAMED:
                self._say(f"Left out of the outputs: {show_path(path)}: {why}.")

    def close(self) -> None:
        """Say how many were not named."""
        if self._count > _NAMED:
            self._say(f"Left out of the outputs: {self._count - _NAMED} more.")


def show_path(path: str) -> str:
    """A path in quotes, on one line and not too long for it, with bytes that are no text written out."""
    if len(path) > _SHOWN_LETTERS:
        path = f"{path[: _SHOWN_LETTERS // 2]}…{path[-_SHOWN_LETTERS // 2 :]}"
    return ascii(path) if not path.isprintable() else f"'{path}'"


def find_outputs(output: Path, workspace: Path, left_out: LeftOut) -> list[tuple[str, Path]]:
    """The regular files below `output` by posix path, in order; links to files are followed only inside the workspace."""
    found: list[tuple[str, Path]] = []
    if is_empty_folder(output):
        return found
    top = workspace.resolve()
    if output.is_symlink():
        left_out.add(output.name, "the output folder has been replaced by a link")
        return found

    def unreadable(error: OSError) -> None:
        if Path(error.filename) != output or not isinstance(error, FileNotFoundError):
            left_out.add(os.path.relpath(error.filename, output), _reason(error))

    for folder, subfolders, names in os.walk(output, onerror=unreadable):
        subfolders.sort()
        for name in subfolders:
            if os.path.islink(Path(folder, name)):  # noqa: PTH114 - says no where a path is too long; the walk complains of it
                left_out.add(Path(folder, name).relative_to(output).as_posix(), "a link to a folder")
        for name in sorted(names):
            path = Path(folder, name)
            relative = path.relative_to(output).as_posix()
            why = _why_not(path, relative, top)
            if why is None:
                found.append((relative, path))
            else:
                left_out.add(relative, why)
    return found


def is_empty_folder(path: Path) -> bool:
    """Whether this is a folder, not a link to one, in which there is nothing."""
    try:
        return not os.path.islink(path) and not os.listdir(path)  # noqa: PTH114, PTH208 - asked for every task
    except OSError:
        return False


def _why_not(path: Path, relative: str, top: Path) -> str | None:
    try:
        relative.encode()
        real = path.resolve()
        if not real.is_relative_to(top):
            return "a link that leads out of the job's folder"
        return None if real.is_file() else "a broken link" if path.is_symlink() else "no regular file"
    except UnicodeEncodeError:
        return "its name is no UTF-8"
    except OSError as error:
        return _reason(error)
    except RuntimeError:  # Python up to 3.12 says so of links that lead in a circle
        return "a link that leads to itself"


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


class OutputStore:
    """Stores the files of one attempt.

    Args:
        put: stores one file under its digest; blocks. Raises OSError for a file that can't be read, and anything else for
            what ends the storing.
        left_out: told of files that can't be read.
    """

    def __init__(self, put: Callable[[Path, Digest], None], left_out: LeftOut) -> None:
        self._put = put
        self._left_out = left_out
        self._waiting: queue.SimpleQueue[tuple[str, Path]] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._unfinished = 0
        self._stopped = False
        self._error: Exception | None = None
        self._hashed: list[OutputFile] = []
        self._begun: set[Digest] = set()
        self._stored: set[Digest] = set()

    def store(self, files: list[tuple[str, Path]]) -> bool:
        """Store these; False when `stop` came first. What is under way then is left to itself: nobody waits for it.

        Raises:
            Exception: what `put` raised.
        """
        if not files:
            return not self._stopped
        with self._changed:
            for file in files:
                self._waiting.put(file)
            self._unfinished = len(files)
        for number in range(min(_THREADS, len(files))):
            threading.Thread(target=self._work, name=f"gpulayer-outputs-{number}", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._error is not None or self._unfinished == 0)
            whole, self._stopped = not self._stopped, True
            if whole and self._error is not None:
                raise self._error
            return whole

    def stop(self) -> None:
        """Let `store` return at once. Thread-safe."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    @property
    def stored(self) -> tuple[OutputFile, ...]:
        """What is stored, by path."""
        with self._changed:
            return tuple(sorted((file for file in self._hashed if file.sha256 in self._stored), key=lambda file: file.path))

    def _work(self) -> None:
        while True:
            try:
                path, file = self._waiting.get_nowait()
            except queue.Empty:
                return
            if self._stopped:
                return
            try:
                self._store_one(path, file)
            except OSError as error:
                if not self._stopped:  # afterwards the files are removed under this thread
                    self._left_out.add(path, _reason(error))
            except Exception as error:  # noqa: BLE001 - the top of this thread: `store` raises it
                with self._changed:
                    self._error = self._error or error
                    self._changed.notify_all()
                return
            with self._changed:
                self._unfinished -= 1
                self._changed.notify_all()

    def _store_one(self, path: str, file: Path) -> None:
        sha256, size = file_digest(file)
        with self._changed:
            self._hashed.append(OutputFile(path=path, sha256=sha256, size_bytes=size))
            if sha256 in self._begun:
                return  # the same bytes under another name
            self._begun.add(sha256)
        self._put(file, sha256)
        with self._changed:
            self._stored.add(sha256)
