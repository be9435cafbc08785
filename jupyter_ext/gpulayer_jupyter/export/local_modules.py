"""Modules that lie beside the notebook or in its project, with everything of that kind which they import in turn.

A module that the kernel has imported is found where the kernel found it, another one as Python finds it on the module path; none is
imported for it. Sources are read from disk at each submit. Installed packages stay where they are. Runs in the kernel.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpulayer.errors import InvalidSpec
from gpulayer_jupyter.export.import_names import imported_by_source, imported_by_statement
from gpulayer_jupyter.export.installed_packages import installed_prefixes
from gpulayer_jupyter.export.module_bodies import ModuleSource

Loaded = Callable[[str], importlib.machinery.ModuleSpec | None]
"""How the kernel has found a module; None for one that it has not imported."""
_NEVER = frozenset({"gpulayer", "gpulayer_server", "gpulayer_jupyter"})  # each worker has its own
_DATA_SKIPPED = (".py", ".pyc", ".pyo", ".ipynb", ".so", ".pyd")
_LOADERS = (
    (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
    (importlib.machinery.SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES),
)
_FOLDERS_SKIPPED = frozenset({"__pycache__", "node_modules", "gpulayer_runs"})


@dataclass
class LocalModules:
    """What travels.

    Args:
        files: path in the bundle → file, or what was read of it: a source is read once.
        names: dotted names of the modules.
        sources: of these, what is in the ones that are no mere folders.
        installed: top-level names of imported packages that do not travel.
    """

    files: dict[str, Path | bytes] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    sources: dict[str, ModuleSource] = field(default_factory=dict)
    installed: set[str] = field(default_factory=set)


def nothing_loaded(name: str) -> importlib.machinery.ModuleSpec | None:  # noqa: ARG001 - the answer where nothing is imported
    """No module has been imported."""
    return None


class ModuleSearch:
    """Finds the local modules that statements import, and those that these import in turn.

    Args:
        roots: folders below which a module counts as local.
        module_path: `sys.path` of the kernel.
        folders: the kernel's working directory, and the one that it started in: entries like ".." and "" are read against both.
        loaded: what the kernel has imported.
    """

    def __init__(
        self, *, roots: Sequence[Path], module_path: Sequence[str], folders: Sequence[Path], loaded: Loaded = nothing_loaded
    ) -> None:
        self.found = LocalModules()
        self._seen: set[str] = set()
        self._entries: list[str] = []
        self._finders: dict[str, importlib.machinery.FileFinder] = {}
        self._local: dict[Path, bool] = {}
        self._specs: dict[str, importlib.machinery.ModuleSpec | None] = {}
        self._loaded = loaded
        relative: dict[Path, None] = {}
        for entry in module_path:
            if Path(entry).is_absolute():
                self._entries.append(str(Path(entry).resolve()))
                continue
            for folder in folders:
                relative[(folder / entry).resolve()] = None
                self._entries.append(str((folder / entry).resolve()))
        self._entries.extend(str(folder.resolve()) for folder in folders)
        self._entries = list(dict.fromkeys(self._entries))
        # `sys.path.append("..")` is a person saying that the folder above belongs to the notebook.
        self._roots = [*(root.resolve() for root in roots), *relative]

    def follow(self, statements: Iterable[ast.AST]) -> Iterator[str]:
        """Put what these statements import into `found`; gives the name of each module that it has looked at."""
        for statement in statements:
            for name in imported_by_statement(statement):
                yield from self._add(name)

    def _add(self, dotted: str) -> Iterator[str]:
        """Take a module, the packages above it, and what they import."""
        pending = [dotted]
        while pending:
            name = pending.pop()
            parts = name.split(".")
            locations: list[str] | None = None
            for depth in range(1, len(parts) + 1):
                part = ".".join(parts[:depth])
                spec = self._find(part, locations)
                if spec is None:
                    if depth == 1 and part not in sys.stdlib_module_names:
                        self.found.installed.add(part)  # a built-in import hook's, or missing here as well
                    break
                locations = list(spec.submodule_search_locations or ())
                if part in self._seen:
                    continue
                self._seen.add(part)
                pending.extend(self._take(part, spec))
                yield part

    def _find(self, name: str, locations: list[str] | None) -> importlib.machinery.ModuleSpec | None:
        # A package is asked for with each of its modules.
        if name not in self._specs:
            self._specs[name] = self._ask(name, locations)
        return self._specs[name]

    def _ask(self, name: str, locations: list[str] | None) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in _NEVER or top in sys.builtin_module_names:
            return None
        known = self._loaded(name)
        if known is not None and _is_there(known):
            return known
        # Not `PathFinder`: for a namespace inside a namespace it wants the parent imported.
        portions: list[str] = []
        for entry in self._entries if locations is None else locations:
            finder = self._finders.get(entry)
            if finder is None:
                finder = self._finders[entry] = importlib.machinery.FileFinder(entry, *_LOADERS)
            spec = finder.find_spec(name)
            if spec is not None and spec.loader is not None:
                return spec
            portions.extend((spec.submodule_search_locations or ()) if spec is not None else ())
        if not portions:
            return None
        namespace = importlib.machinery.ModuleSpec(name, None, is_package=True)
        namespace.submodule_search_locations = portions
        return namespace

    def _take(self, name: str, spec: importlib.machinery.ModuleSpec) -> Iterator[str]:
        places = [Path(place) for place in spec.submodule_search_locations or ()]
        source = Path(spec.origin) if spec.origin and spec.origin.endswith(".py") and spec.has_location else None
        where = source if source is not None else next(iter(places), None)
        if where is None or not self._is_local(where):
            self.found.installed.add(name.partition(".")[0])
            return
        self.found.names.add(name)
        package_path = name.replace(".", "/")
        is_package = spec.submodule_search_locations is not None
        if is_package:
            for place in places:
                if self._is_local(place):
                    for data in _data_files(place):
                        self.found.files.setdefault(f"{package_path}/{data.relative_to(place).as_posix()}", data)
        if source is not None:
            path = f"{package_path}/__init__.py" if is_package else f"{package_path}.py"
            content, is_program = _read(source)
            self.found.files[path] = source if is_program else content
            self.found.sources[name] = ModuleSource(content, is_package)
            package = name if is_package else name.rpartition(".")[0]
            try:
                yield from imported_by_source(content, package=package)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return  # it travels, and the rank says what is wrong with it, as the kernel would

    def _is_local(self, path: Path) -> bool:
        folder = path.parent
        known = self._local.get(folder) if path.suffix == ".py" else None  # a link may lead a folder elsewhere, and seldom a module
        if known is None:
            known = self._lies_locally(path)
            if path.suffix == ".py" and not path.is_symlink():
                self._local[folder] = known
        return known

    def _lies_locally(self, path: Path) -> bool:
        resolved = path.resolve()
        if "site-packages" in resolved.parts or "dist-packages" in resolved.parts:
            return False
        inside = [root for root in self._roots if resolved.is_relative_to(root)]
        installed = [prefix for prefix in installed_prefixes() if resolved.is_relative_to(prefix)]
        # A project may lie below the prefix (/usr/…), and an environment below the project: the nearer one decides.
        nearest = max((len(root.parts) for root in inside), default=0)
        return bool(inside) and nearest > max((len(prefix.parts) for prefix in installed), default=0)


def _is_there(spec: importlib.machinery.ModuleSpec) -> bool:
    """Whether what the kernel imported is still on the disk; extension modules and what import hooks make are none of ours."""
    if spec.origin is not None and spec.has_location:
        return spec.origin.endswith(".py") and Path(spec.origin).is_file()
    return spec.origin is None and any(Path(place).is_dir() for place in spec.submodule_search_locations or ())


def _read(source: Path) -> tuple[bytes, bool]:
    """A source with whether it may be executed as a program, which only the file itself tells the bundle."""
    try:
        with source.open("rb") as file:
            return file.read(), bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)
    except OSError as error:
        raise InvalidSpec(f"A file that the cell needs can't be read: {error.strerror}.", asked=str(source)) from error


def _data_files(package: Path) -> Iterator[Path]:
    """Files of a package that are no source, in it and in folders below that hold no source of their own."""
    with os.scandir(package) as scan:  # hundreds of sources are passed over without asking for one of them
        entries = sorted(scan, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _FOLDERS_SKIPPED:
            continue
        if entry.is_dir():
            folder = package / entry.name
            if not entry.is_symlink() and not (folder / "pyvenv.cfg").is_file() and not any(folder.glob("*.py")):
                yield from _data_files(folder)
        elif not entry.name.endswith(_DATA_SKIPPED) and entry.is_file():
            yield package / entry.name
