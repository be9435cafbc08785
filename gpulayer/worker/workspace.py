"""The folder that one attempt runs in: `source/` (its working directory), `inputs/`, `output/`. Runs in the agent."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
from pathlib import Path
from typing import IO

from gpulayer.bundle.archive import extract_archive
from gpulayer.errors import InvalidSpec
from gpulayer.protocol import InputFile

_LOCK_NAME = "lock"
_log = logging.getLogger(__name__)


class Workspace:
    """One attempt's folder, for its user alone (0700)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = path / "source"
        self.inputs = path / "inputs"
        self.output = path / "output"

    def create(self) -> None:
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
        """Delete everything, folders that the job made read-only included."""
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
        _remove_abandoned(folder)

    def workspace(self, name: str) -> Workspace:
        return Workspace(self.path / name)

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
