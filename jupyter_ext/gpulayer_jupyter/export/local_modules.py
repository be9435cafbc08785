"""Modules that lie beside the notebook or in its project, with everything of that kind which they import in turn.

Modules are found as Python finds them, on the kernel's module path, and are never imported for it. Installed packages stay
where they are. Runs in the kernel.
"""

from __future__ import annotations

import ast
import importlib.machinery
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_NEVER = frozenset({"gpulayer", "gpulayer_server", "gpulayer_jupyter"})  # each worker has its own
_DATA_SKIPPED = frozenset({".py", ".pyc", ".pyo", ".ipynb", ".so", ".pyd"})
_LOADERS = (
    (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
    (importlib.machinery.SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES),
)
_FOLDERS_SKIPPED = frozenset({"__pycache__", "node_modules", "gpulayer_runs"})


@dataclass
class LocalModules:
    """What travels.

    Args:
        files: path in the bundle → file.
        names: dotted names of the modules.
        installed: top-level names of imported packages that do not travel.
    """

    files: dict[str, Path] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    installed: set[str] = field(default_factory=set)


def find_local_modules(statements: Iterable[ast.AST], *, roots: Sequence[Path], module_path: Sequence[str], folder: Path) -> LocalModules:
    """Follow the imports of these statements.

    Args:
        statements: what runs.
        roots: folders below which a module counts as local.
        module_path: `sys.path` of the kernel.
        folder: the kernel's working directory, against which entries like ".." and "" are read.
    """
    search = _Search([root.resolve() for root in roots], module_path, folder)
    for statement in statements:
        for name in _imported(statement, package=""):
            search.add(name)
    return search.found


class _Search:
    def __init__(self, roots: Sequence[Path], module_path: Sequence[str], folder: Path) -> None:
        self.found = LocalModules()
        self._seen: set[str] = set()
        self._entries: list[str] = []
        self._finders: dict[str, importlib.machinery.FileFinder] = {}
        relative: list[Path] = []
        for entry in module_path:
            absolute = (folder / entry).resolve()
            if not Path(entry).is_absolute():
                relative.append(absolute)
            self._entries.append(str(absolute))
        if str(folder.resolve()) not in self._entries:
            self._entries.append(str(folder.resolve()))
        # `sys.path.append("..")` is a person saying that the folder above belongs to the notebook.
        self._roots = [*roots, *relative]
        prefixes = {sys.prefix, sys.base_prefix, *(sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib"))}
        self._installed = [Path(prefix).resolve() for prefix in prefixes]

    def add(self, dotted: str) -> None:
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

    def _find(self, name: str, locations: list[str] | None) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in _NEVER or top in sys.builtin_module_names:
            return None
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
            self.found.files[f"{package_path}/__init__.py" if is_package else f"{package_path}.py"] = source
            package = name if is_package else name.rpartition(".")[0]
            try:
                tree = ast.parse(source.read_bytes(), filename=str(source))
            except SyntaxError:
                return  # it travels, and the rank says what is wrong with it, as the kernel would
            yield from _imported(tree, package=package)

    def _is_local(self, path: Path) -> bool:
        resolved = path.resolve()
        if "site-packages" in resolved.parts or "dist-packages" in resolved.parts:
            return False
        inside = [root for root in self._roots if resolved.is_relative_to(root)]
        installed = [prefix for prefix in self._installed if resolved.is_relative_to(prefix)]
        # A project may lie below the prefix (/usr/…), and an environment below the project: the nearer one decides.
        nearest = max((len(root.parts) for root in inside), default=0)
        return bool(inside) and nearest > max((len(prefix.parts) for prefix in installed), default=0)


def _imported(tree: ast.AST, *, package: str) -> Iterator[str]:
    """Dotted names that importing may touch, function bodies and `import_module("…")` included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".") if package else []
                above = parents[: len(parents) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str) and not first.value.startswith("."):
                    yield first.value


def _data_files(package: Path) -> Iterator[Path]:
    """Files of a package that are no source, in it and in folders below that hold no source of their own."""
    for entry in sorted(package.iterdir()):
        if entry.name.startswith(".") or entry.name in _FOLDERS_SKIPPED:
            continue
        if entry.is_dir():
            if not entry.is_symlink() and not (entry / "pyvenv.cfg").is_file() and not any(entry.glob("*.py")):
                yield from _data_files(entry)
        elif entry.is_file() and entry.suffix not in _DATA_SKIPPED:
            yield entry


def package_versions(installed: Iterable[str], distributions: Mapping[str, list[str]]) -> dict[str, str]:
    """Name → version of the distributions that these imports come from."""
    from importlib.metadata import PackageNotFoundError, version

    versions: dict[str, str] = {}
    for top in installed:
        for distribution in distributions.get(top, ()):
            try:
                versions[distribution] = version(distribution)
            except PackageNotFoundError:
                continue
    return dict(sorted(versions.items()))
