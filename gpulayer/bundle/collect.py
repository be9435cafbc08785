"""Which files of a folder travel with a job, and which do not and why. Runs in the submitting process.

The bytes are never changed, line ends included; how they are packed is archive.py's matter.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpulayer import settings
from gpulayer.bundle.archive import EXTRACT_LIMIT_FILES, Bundle, Content, Link
from gpulayer.bundle.ignore import IgnoreRules
from gpulayer.errors import InvalidSpec, TooLarge

BUNDLE_LIMIT_FILES = 30_000
"""Above this a folder is a data set, not source: it belongs into an input."""
_SKIPPED_NAMES = frozenset(
    {".git", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints", "node_modules", "gpulayer_runs"}
)
_HOME_MARK = "metadata.db"
_HOME_NAMES = frozenset({_HOME_MARK, f"{_HOME_MARK}-wal", f"{_HOME_MARK}-shm", "artifacts", "servers"})
_LARGEST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An entry that does not travel; `rule` is `file:line: pattern`, or why nothing of its kind ever does."""

    path: str
    rule: str


@dataclass(frozen=True)
class Collection:
    """What was found in a folder."""

    bundle: Bundle
    left_out: tuple[LeftOut, ...]


def collect_sources(
    root: Path, *, limit_bytes: int = settings.BUNDLE_LIMIT_BYTES, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> Bundle:
    """The source files below `root`.

    `.gitignore` and `.gpulayerignore` files hold as git would have them, for tracked files too. `exclude` adds patterns;
    `include` brings back files that a pattern leaves out (not what never travels: `.git`, environments, caches, homes).

    Raises:
        TooLarge: over `limit_bytes` or 30,000 files, naming the ten largest.
        InvalidSpec: a link leads out of the folder, or a file can't be read.
    """
    return survey_sources(root, limit_bytes=limit_bytes, include=include, exclude=exclude).bundle


def survey_sources(
    root: Path, *, limit_bytes: int = settings.BUNDLE_LIMIT_BYTES, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> Collection:
    """`collect_sources`, and what was left out by which rule."""
    root = _folder(root)
    walk = _Walk(root, included=IgnoreRules().with_lines(include, origin="--include") if include else None)
    rules = _rules_above(root).with_lines(exclude, origin="--exclude")
    walk.enter(root, "", rules)
    _check_size(root, walk.files, walk.total_bytes, limit_bytes, BUNDLE_LIMIT_FILES)
    return Collection(bundle=Bundle(walk.files), left_out=tuple(walk.left_out))


def collect_folder(root: Path, *, limit_bytes: int | None = None) -> Bundle:
    """Every file below `root`, whatever ignore files say: how a folder travels as an input."""
    root = _folder(root)
    walk = _Walk(root, included=None, everything=True)
    walk.enter(root, "", IgnoreRules())
    _check_size(root, walk.files, walk.total_bytes, limit_bytes, EXTRACT_LIMIT_FILES)
    return Bundle(walk.files)


def find_project(start: Path) -> Path:
    """The nearest folder with `.git` or `pyproject.toml`, from `start` upwards, else `start`.

    Never the home directory nor one above it: a stray `.git` there would ship a person's whole life.
    """
    start = start.resolve()
    if start.is_file():
        start = start.parent
    home = Path.home().resolve()
    forbidden = {home, *home.parents}
    for folder in (start, *start.parents):
        if folder in forbidden:
            break
        if (folder / ".git").exists() or (folder / "pyproject.toml").is_file():
            return folder
    return start


def _folder(root: Path) -> Path:
    resolved = root.resolve()
    if not resolved.is_dir():
        raise InvalidSpec("The source is not a folder.", asked=str(root), fix="Name an existing folder.")
    return resolved


def _rules_above(root: Path) -> IgnoreRules:
    """What the ignore files between the top of root's git repository and root say about root's inside."""
    above: list[Path] = []
    if not (root / ".git").exists():
        for folder in root.parents:
            above.append(folder)
            if (folder / ".git").exists():
                break
        else:
            above = []
    rules = IgnoreRules()
    for folder in reversed(above):
        rules = rules.entered_above(folder, root)
    return rules


class _Walk:
    def __init__(self, root: Path, *, included: IgnoreRules | None, everything: bool = False) -> None:
        self.files: dict[str, Content] = {}
        self.left_out: list[LeftOut] = []
        self.total_bytes = 0
        self._root = root
        self._included = included
        self._everything = everything
        self._most = EXTRACT_LIMIT_FILES if everything else 10 * BUNDLE_LIMIT_FILES

    def enter(self, folder: Path, path: str, rules: IgnoreRules, *, ignored_by: str | None = None) -> None:
        """Take what lies in `folder`; with `ignored_by` only what an include pattern brings back."""
        if not self._everything:
            rules = rules.entered(folder, path)
        for entry in _entries(folder):
            if len(self.files) > self._most:
                return  # far over the limit: counting on would only take time
            below = f"{path}/{entry.name}" if path else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            never = None if self._everything else self._never(entry, is_folder=is_folder, at_top=not path)
            if never is not None:
                self.left_out.append(LeftOut(below, never))
                continue
            rule = ignored_by
            if rule is None and not self._everything:
                rule = rules.verdict(below, is_folder=is_folder)
            if rule is not None and self._included is not None and self._included.verdict(below, is_folder=is_folder):
                rule = None
            if is_folder and (rule is None or self._included is not None):
                self.enter(Path(entry.path), below, rules, ignored_by=rule)
            elif rule is not None:
                self.left_out.append(LeftOut(below, rule))
            else:
                self._take(entry, below)

    def _never(self, entry: os.DirEntry[str], *, is_folder: bool, at_top: bool) -> str | None:
        if entry.name in _SKIPPED_NAMES:
            return f"{entry.name} never travels"
        if at_top and entry.name in _HOME_NAMES and (self._root / _HOME_MARK).exists():
            return "part of a GPUlayer home"
        if is_folder and Path(entry.path, "pyvenv.cfg").is_file():
            return "a virtual environment"
        if is_folder and Path(entry.path, _HOME_MARK).exists():
            return "a GPUlayer home"
        return None

    def _take(self, entry: os.DirEntry[str], path: str) -> None:
        if entry.is_symlink():
            self.files[path] = self._link(Path(entry.path), path)
            return
        facts = entry.stat(follow_symlinks=False)
        if not stat.S_ISREG(facts.st_mode):
            self.left_out.append(LeftOut(path, "not a regular file"))
            return
        if not os.access(entry.path, os.R_OK):
            raise InvalidSpec("A file of the source can't be read.", asked=path, fix="Change its rights, or name it in .gpulayerignore.")
        self.files[path] = entry.path
        self.total_bytes += facts.st_size

    def _link(self, at: Path, path: str) -> Link:
        written = str(at.readlink())
        try:
            leads_to = at.resolve()
        except (OSError, RuntimeError) as error:
            raise InvalidSpec(f"A link can't be followed: {error}.", asked=path, fix="Remove it, or name it in .gpulayerignore.") from error
        if not leads_to.is_relative_to(self._root):
            raise InvalidSpec(
                "A link leads out of the folder that travels.",
                asked=f"{path} → {written}",
                fix="Give what it points to as an input, or name the link in .gpulayerignore.",
            )
        folder = path.rpartition("/")[0]
        stays = not Path(written).is_absolute() and not os.path.normpath(f"{folder}/{written}".lstrip("/")).startswith("..")
        if stays:
            return Link(Path(written).as_posix())
        return Link(Path(os.path.relpath(leads_to, at.parent.resolve())).as_posix())


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from sorted(entries, key=lambda entry: entry.name)
    except PermissionError as error:
        raise InvalidSpec(
            "A folder of the source can't be read.", asked=str(folder), fix="Change its rights, or name it in .gpulayerignore."
        ) from error


def _check_size(root: Path, files: dict[str, Content], total_bytes: int, limit_bytes: int | None, limit_files: int) -> None:
    too_many = len(files) > limit_files
    if not too_many and (limit_bytes is None or total_bytes <= limit_bytes):
        return
    sizes = {path: Path(content).stat().st_size for path, content in files.items() if isinstance(content, Path | str)}
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:_LARGEST_SHOWN]
    shown = ", ".join(f"{path} ({readable_size(sizes[path])})" for path in largest)
    limit = f"{limit_files:,} files" if too_many else readable_size(limit_bytes or 0)
    found = f"more than {limit_files:,} files" if too_many else readable_size(total_bytes)
    raise TooLarge(
        f"The folder is over the limit of {limit} for source.",
        asked=str(root),
        found=f"{found}; the largest are {shown}",
        fix="Name what the job does not need in .gpulayerignore, or give data as inputs.",
        details={"largest": [{"path": path, "size_bytes": sizes[path]} for path in largest]},
    )


def readable_size(size_bytes: int) -> str:
    """`268435456` as `256.0 MB`."""
    size = float(size_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1024 or unit == "GB":
            break
        size /= 1024
    return f"{int(size)} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
