"""The folder that one attempt runs in: `source/` (its working directory), `inputs/`, `output/`. Runs in the agent."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import threading
from pathlib import Path
from typing import IO

from gpulayer.bundle.unpack import extract_archive
from gpulayer.errors import InvalidSpec
from gpulayer.protocol import InputFile

_LOCK_NAME = "lock"
_FOLDERS = ["inputs", "output", "source"]
_SPARES = 8
_log = logging.getLogger(__name__)


class Workspace:
    """One attempt's folder, for its user alone (0700).

    Args:
        path: where it lies once created.
        spares: gives and takes workspaces in which nothing lies.
    """

    def __init__(self, path: Path, spares: SpareWorkspaces | None = None) -> None:
        self.path = path
        self._spares = spares

    @property
    def source(self) -> Path:
        return self.path / "source"

    @property
    def inputs(self) -> Path:
        return self.path / "inputs"

    @property
    def output(self) -> Path:
        return self.path / "output"

    @property
    def displays(self) -> Path:
        """Made by the rank that displays first."""
        return self.path / "displays"

    def create(self) -> None:
        if self._spares is not None and self._spares.take(self.path):
            return
        self.path.mkdir(mode=0o700, parents=True)
        for folder in (self.source, self.inputs, self.output):
            folder.mkdir(mode=0o700)

    def unpack_source(self, archive: Path) -> None:
        extract_archive(archive, self.source)

    def add_input(self, name: str, file: InputFile, artifact: Path) -> None:
        """Lay an input at `inputs/NAME`, and link it where the job's own relative path looks for it.

        Raises:
            InvalidSpec: the name or the link leads out of the workspace, or a folder's archive is refused.
        """
        target = self.inputs / name
        if Path(name).name != name or name in (".", ".."):
            raise InvalidSpec("An input's name is one plain word.", asked=f"input {name!r}")
        if file.archive:
            extract_archive(artifact, target)
        else:
            # A copy, not a link into the cache: a job may change its inputs, and other jobs read the same artifact.
            shutil.copyfile(artifact, target)
        if file.link is not None:
            self._link(file.link, target)

    def remove(self) -> None:
        """Delete everything, folders that the job made read-only included; an empty workspace is kept for the next attempt."""
        if self._spares is None or not self._spares.keep(self):
            remove_tree(self.path)

    def _link(self, link: str, target: Path) -> None:
        parts = Path(link).parts
        at = self.source / link
        if Path(link).is_absolute() or ".." in parts or not parts or not at.parent.resolve().is_relative_to(self.source.resolve()):
            raise InvalidSpec("An input's link leads out of the job's folder.", asked=link)
        at.parent.mkdir(parents=True, exist_ok=True)
        # The input is what was asked for: it stands in for whatever the bundle brought under that path.
        if at.is_symlink() or at.is_file():
            at.unlink()
        elif at.is_dir():
            shutil.rmtree(at)
        at.symlink_to(os.path.relpath(target, at.parent.resolve()))


class SpareWorkspaces:
    """Empty workspaces that are used again: making and removing four folders costs more than the rest of a short job's place.

    Thread-safe.

    Args:
        folder: where they lie.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._spares: list[str] = []
        self._count = 0

    def take(self, path: Path) -> bool:
        """Let a spare one become the workspace at `path`; False when there is none."""
        with self._lock:
            spare = self._spares.pop() if self._spares else None
        if spare is None:
            return False
        os.rename(spare, path)  # noqa: PTH104 - this and the following are done for every task, where a Path costs more than the call
        return True

    def keep(self, workspace: Workspace) -> bool:
        """Keep a workspace whose attempt is over; False when it is not as a fresh one is, or enough are kept."""
        path = os.fspath(workspace.path)
        try:
            if not (_is_fresh(path) and sorted(os.listdir(path)) == _FOLDERS):  # noqa: PTH208
                return False
            if not all(_is_fresh(f"{path}/{name}") and not os.listdir(f"{path}/{name}") for name in _FOLDERS):  # noqa: PTH208
                return False
        except OSError:
            return False  # the job has changed it in some way: it is removed
        with self._lock:
            if len(self._spares) >= _SPARES:
                return False
            self._count += 1
            spare = f"{self._folder}/spare-{self._count}"
        os.rename(path, spare)  # noqa: PTH104
        with self._lock:
            self._spares.append(spare)
        return True


def _is_fresh(folder: str) -> bool:
    """A folder, not a link to one, with the rights that it was made with and no others."""
    if os.lstat(folder).st_mode != stat.S_IFDIR | stat.S_IRWXU:
        return False
    return not any(name.startswith(("user.", "system.posix_acl")) for name in getattr(os, "listxattr", lambda _: [])(folder))


class WorkspaceRoot:
    """Where one agent's workspaces lie. Those of agents that died are removed by the next one that starts.

    Args:
        folder: shared by the agents of one user on this machine.
        name: this agent's own part of it.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name
        self.path.mkdir(mode=0o700, parents=True)
        self._lock = _own_folder(self.path)
        self._spares = SpareWorkspaces(self.path)
        _remove_abandoned(folder)

    def workspace(self, name: str) -> Workspace:
        return Workspace(self.path / name, self._spares)

    def close(self) -> None:
        remove_tree(self.path)
        self._lock.close()


def _own_folder(folder: Path) -> IO[bytes]:
    """Put a locked lock file into a folder that is ours; the kernel lets go of it when this process dies."""
    unnamed = folder / f"{_LOCK_NAME}-unnamed"
    file = unnamed.open("wb")
    fcntl.flock(file, fcntl.LOCK_EX)
    # Locked first, named then: another agent never finds a lock file that nobody holds yet.
    unnamed.rename(folder / _LOCK_NAME)
    return file


def _take_over(folder: Path) -> IO[bytes] | None:
    """The lock of a folder whose agent is gone; None while that lives."""
    try:
        file = (folder / _LOCK_NAME).open("rb")
    except FileNotFoundError:
        return None  # its agent is just about to lock it, or has just removed it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _remove_abandoned(folder: Path) -> None:
    for other in folder.iterdir():
        lock = _take_over(other)
        if lock is not None:
            _log.info("removing the workspaces of an agent that is gone: %s", other)
            remove_tree(other)
            lock.close()


def remove_tree(path: Path) -> None:
    """Delete a folder, also one in which a job took away its own rights."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except PermissionError:
        path.chmod(stat.S_IRWXU)
        for folder, subfolders, _ in os.walk(path):
            for name in subfolders:
                below = Path(folder, name)
                if not below.is_symlink():
                    below.chmod(stat.S_IRWXU)
        shutil.rmtree(path)
