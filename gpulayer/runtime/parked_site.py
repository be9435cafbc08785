"""Whether a parked interpreter would find other modules than a new program: judged where the job starts."""

from __future__ import annotations

import os
import sys
import zipimport
from typing import Any


class ParkedSite:
    """What was loaded and installed as the interpreter was made.

    Args:
        bare: the modules that Python had loaded by itself.
        rank: those and what `rank_main` needs, which every rank has.
    """

    def __init__(self, bare: frozenset[str], rank: frozenset[str]) -> None:
        loaded = {name.partition(".")[0] for name in sys.modules} - {"gpulayer", "__main__"}
        self._loaded = loaded - {name.partition(".")[0] for name in bare}
        self._loaded_beside_rank = loaded - {name.partition(".")[0] for name in rank}
        self._changed_at = {path: _changed_at(path) for path in sys.path if path.endswith(("site-packages", "dist-packages"))}
        self._path_files = _find_path_files(self._changed_at)

    def look(self) -> str | None:
        """Why no job may start here any more, or not at this moment; None where what was installed since is found."""
        changed = {path: _changed_at(path) for path in self._changed_at}
        if changed != self._changed_at:
            # New modules are found; what Python does with `.pth` files at its start is not done again.
            found = _find_path_files(changed)
            if found is None:
                return "the environment is being changed"
            if found != self._path_files:
                return "the .pth files of the environment have changed"
            self._changed_at = changed
        return None

    def refuse(self, message: dict[str, Any]) -> str | None:
        """Why this job must start as a new program, or None."""
        if (why := self.look()) is not None:
            return why
        if message["form"] == "-c" and sys.version_info >= (3, 13):
            return "tracebacks of `-c` show its lines from Python 3.13 on"
        folder = message["cwd"]
        if message["form"] == "script":
            script = os.path.realpath(os.path.join(folder, message["argv"][1]))  # noqa: PTH118
            if _is_archive(script):
                return "it is an archive, which may bring modules that are loaded already"
            folder = script if os.path.isdir(script) else os.path.dirname(script)  # noqa: PTH112, PTH120
        elif message["form"] == "rank":
            script = next(word for word in message["argv"][3:] if not word.startswith("--"))  # the words before it are ours
            folder = os.path.dirname(os.path.realpath(os.path.join(folder, script)))  # noqa: PTH118, PTH120
        try:
            names = {name.partition(".")[0] for name in os.listdir(folder)}  # noqa: PTH208 - names alone
        except OSError:
            return None  # the job fails on it as it would have
        shadowing = names & (self._loaded_beside_rank if message["form"] == "rank" else self._loaded)
        return f"the job's {min(shadowing)} has the name of a module that is loaded already" if shadowing else None


def _changed_at(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return None


def _is_archive(path: str) -> bool:
    try:
        zipimport.zipimporter(path)
    except (zipimport.ZipImportError, OSError):
        return False
    return True


def _find_path_files(folders: dict[str, int | None]) -> set[tuple[str, int, int]] | None:
    """Name, time and size of every `.pth` file; None where somebody is at work on them."""
    found = set()
    try:
        for folder, changed_at in folders.items():
            if changed_at is not None:
                for entry in os.scandir(folder):
                    if entry.name.endswith(".pth"):
                        stat = entry.stat(follow_symlinks=False)
                        found.add((entry.path, stat.st_mtime_ns, stat.st_size))
    except OSError:
        return None
    return found
