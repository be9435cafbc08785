"""Local modules as `bodies.py` sees them; what one source holds is read once, and kept from export to export.

Runs nothing. Runs in the kernel.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpulayer_jupyter.export.bodies import Body, BodyReader
from gpulayer_jupyter.export.import_names import MOST_KEPT, tree_of
from gpulayer_jupyter.export.known_names import Names, Public, at_once


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """A local module's source; `is_package`: it is a package's `__init__.py`."""

    content: bytes
    is_package: bool = False


class ModuleBodies:
    """What importing one module runs, and its functions and classes.

    Args:
        name: its dotted name.
        source: what it is read from.
        public: what `from module import *` binds, for other local modules.

    Raises:
        SyntaxError: or ValueError, RecursionError or MemoryError, for what Python can't read.
    """

    def __init__(self, name: str, source: ModuleSource, public: Public) -> None:
        self._name = name
        self._source = source
        self._public = public
        self._bodies: dict[str, Body] | None = None
        tree = tree_of(source.content)
        parts = [at_once(statement) for statement in tree.body]
        names = self._learn(tree, parts)
        self.top = BodyReader(names).of_module(tree, parts)
        self.origins = names.origins
        self.defined = tuple(names.bodies)
        self.stars = names.stars

    def _learn(self, tree: ast.Module, parts: Sequence[Sequence[ast.AST]]) -> Names:
        package = self._name if self._source.is_package else self._name.rpartition(".")[0]
        names = Names(self._name, package, self._public)
        for statement, nodes in zip(tree.body, parts, strict=True):
            names.learn(statement, nodes)
        return names

    def public(self) -> list[str]:
        """The functions, classes and imports that `from module import *` passes on."""
        return [name for name in (*self.defined, *self.origins) if not name.startswith("_")]

    def body(self, name: str) -> Body | None:
        """The function or class of this name; all are read when the first is asked for, and then the tree is let go again."""
        if name not in self.defined:
            return None
        if self._bodies is None:
            tree = tree_of(self._source.content)
            names = self._learn(tree, [at_once(statement) for statement in tree.body])
            reader = BodyReader(names)
            self._bodies = {own: reader.of(node) for own, node in names.bodies.items()}
        return self._bodies[name]


_known: dict[tuple[bytes, str, bool], ModuleBodies] = {}


class Sources:
    """The local modules of one export, each read when somebody asks.

    Args:
        modules: by dotted name.
    """

    def __init__(self, modules: Mapping[str, ModuleSource]) -> None:
        self._modules = modules
        self._read: dict[str, ModuleBodies | None] = {}
        self._behind: dict[str, Body | None] = {}

    def module(self, name: str) -> ModuleBodies | None:
        """A local module that Python can read; one that it can't travels as it is, and importing it says what is wrong."""
        if name not in self._read:
            self._read[name] = None  # while it is read: an import may come back to it
            source = self._modules.get(name)
            self._read[name] = self._bodies_in(name, source) if source is not None else None
        return self._read[name]

    def public(self, name: str) -> Iterable[str]:
        """What `from module import *` binds, as far as the text of a local module tells."""
        module = self.module(name)
        return module.public() if module is not None else ()

    def behind(self, dotted: str) -> Body | None:
        """The function or class of a local module; a module may pass on what another one defines."""
        if dotted not in self._behind:
            self._behind[dotted] = self._find(dotted)
        return self._behind[dotted]

    def run_by(self, body: Body) -> Iterator[Body]:
        """What a body runs in turn, here and in local modules."""
        yield from body.runs
        yield from (found for dotted in body.calls if (found := self.behind(dotted)) is not None)
        yield from (module.top for name in body.imports if (module := self.module(name)) is not None)

    def _find(self, dotted: str) -> Body | None:
        followed: set[str] = set()
        while dotted and dotted not in followed:
            followed.add(dotted)
            name, _, last = dotted.rpartition(".")
            module = self.module(name) if name else None
            if module is None:
                return None
            found = module.body(last)
            if found is not None:
                return found
            dotted = module.origins.get(last, "")
        return None

    def _bodies_in(self, name: str, source: ModuleSource) -> ModuleBodies | None:
        key = (hashlib.sha256(source.content).digest(), name, source.is_package)
        found = _known.get(key)
        if found is None:
            try:
                found = ModuleBodies(name, source, self.public)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
            if not found.stars:  # else what its names are depends on other sources
                if len(_known) >= MOST_KEPT:
                    _known.clear()
                _known[key] = found
        return found
