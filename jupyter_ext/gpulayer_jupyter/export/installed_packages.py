"""Which installed distributions imported packages come from, with their versions; and which folders hold installed things.

Read from what installers leave beside the packages; nothing is imported. Runs in the kernel.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

from gpulayer.settings import inherited_environment


def package_versions(installed: Iterable[str]) -> dict[str, str]:
    """Name → version of the distributions that these top-level imports come from."""
    versions: dict[str, str] = {}
    for top in installed:
        for found in _distributions_of(top):
            versions[found.metadata["Name"]] = found.version
    return dict(sorted(versions.items()))


def _distributions_of(top: str) -> Sequence[Distribution]:
    try:
        # Most have the name of what they hold; the table of all takes 0.1 s.
        same = distribution(top)
    except (PackageNotFoundError, ValueError):
        return _table(_state()).get(top, ())
    return (same,) if top in _top_levels(same) else _table(_state()).get(top, ())


def _state() -> tuple[tuple[str, int], ...]:
    """The folders that packages are found in, with when something was installed there last."""
    found: list[tuple[str, int]] = []
    for entry in sys.path:
        try:
            found.append((entry, os.stat(entry or ".").st_mtime_ns))  # noqa: PTH116 - entries are strings, and many
        except OSError:
            continue
    return tuple(found)


@lru_cache(maxsize=1)
def _table(state: tuple[tuple[str, int], ...]) -> dict[str, list[Distribution]]:  # noqa: ARG001 - what the answer depends on
    table: dict[str, list[Distribution]] = {}
    for found in distributions():
        for top in _top_levels(found):
            table.setdefault(top, []).append(found)
    return table


def _top_levels(found: Distribution) -> set[str]:
    """`importlib.metadata.packages_distributions` makes a path object for each file of each package, which takes 0.6 s."""
    declared = (found.read_text("top_level.txt") or "").split()
    if declared:
        return set(declared)
    firsts = {line.partition(",")[0].partition("/")[0] for line in (found.read_text("RECORD") or "").splitlines()}
    names = {first.partition(".")[0] if first.endswith((".py", ".so", ".pyd")) else first for first in firsts}
    return {name for name in names if name.isidentifier() and name != "__pycache__"}


@lru_cache(maxsize=1)
def installed_prefixes() -> tuple[Path, ...]:
    """Folders below which everything belongs to Python or was installed."""
    paths = sysconfig.get_paths()
    prefixes = {sys.prefix, sys.base_prefix, *(paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib"))}
    return tuple(Path(prefix).resolve() for prefix in prefixes)


def entries_by_hand(module_path: Sequence[str]) -> list[Path]:
    """The absolute entries of the module path that a program put there: neither an installation nor the environment did."""
    environment = inherited_environment().get("PYTHONPATH", "").split(os.pathsep)
    given = {Path(entry).resolve() for entry in (*environment, *_pth_entries()) if entry}
    found: list[Path] = []
    for entry in module_path:
        path = Path(entry)
        if not path.is_absolute() or path.suffix == ".zip":
            continue
        resolved = path.resolve()
        if resolved not in given and not any(resolved.is_relative_to(prefix) for prefix in installed_prefixes()):
            found.append(resolved)
    return found


@lru_cache(maxsize=1)
def _pth_entries() -> tuple[str, ...]:
    """What editable installs add to the module path."""
    found: list[str] = []
    for folder in (*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])):
        found.append(folder)
        for file in sorted(Path(folder).glob("*.pth")):
            try:
                lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                continue
            no_paths = ("#", "import ", "import\t")
            found.extend(str(Path(folder, line.strip())) for line in lines if line.strip() and not line.startswith(no_paths))
    return tuple(found)
