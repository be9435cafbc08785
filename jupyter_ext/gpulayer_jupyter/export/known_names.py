"""What the names of a history or a local module stand for, as far as it takes to know which calls reach outside the process.

Runs nothing. Runs in the kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


Public = Callable[[str], Iterable[str]]
"""The names that `from module import *` binds, as far as that is known."""


def _nothing_public(module: str) -> Iterable[str]:  # noqa: ARG001 - the answer of somebody who knows no modules
    return ()


@dataclass(slots=True)
class Names:
    """What the global names of a history or a module stand for, as far as this matters here.

    Args:
        module: its dotted name, where these are a module's.
        package: that relative imports start from.
        public_of: what star imports bind.
        bodies: functions, lambdas and classes by name.
        methods: of these classes by name.
        origins: imported names → what they were imported as.
        stars: the modules of star imports.
        version: another one when a name that was known stands for something else.
    """

    module: str = ""
    package: str = ""
    public_of: Public = _nothing_public
    bodies: dict[str, ast.AST] = field(default_factory=dict)
    methods: dict[str, list[ast.AST]] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    version: int = 0
    _texts: dict[str, str] = field(default_factory=dict)
    _made_by: dict[str, str] = field(default_factory=dict)
    _hides_open: bool = False

    def learn(self, statement: ast.AST, parts: Sequence[ast.AST] | None = None) -> None:
        """Take in what a statement binds; `parts`: what runs with it, where that is known already."""
        assigned: set[str] = set()
        for node in parts if parts is not None else at_once(statement):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._import(node)
            elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                self._bind(node.name)
                self.bodies[node.name] = node
                if isinstance(node, ast.ClassDef):
                    self.version += 1
                    for method in node.body:
                        if isinstance(method, FUNCTIONS):
                            self.methods.setdefault(method.name, []).append(method)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        assigned.add(target.id)
                        self._assign(target.id, node.value)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id not in assigned:
                self._bind(node.id)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for name, origin in origins_of(node, self.package).items():
            self._bind(name)
            self.origins[name] = origin
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            module = base_of(node, self.package)
            self.stars.append(module)
            for name in self.public_of(module):
                self.origins[name] = f"{module}.{name}"

    def _bind(self, name: str) -> None:
        for table in self._tables():
            if table.pop(name, None) is not None:
                self.version += 1
        self._hides_open |= name == "open"

    def _assign(self, name: str, value: ast.expr) -> None:
        dotted = self.dotted(value)
        body = value if isinstance(value, ast.Lambda) else self.bodies.get(value.id) if isinstance(value, ast.Name) else None
        text, made = self.text(value), self.made(value)
        self._bind(name)
        if dotted:
            self.origins[name] = dotted
        if body is not None:
            self.bodies[name] = body
        if text is not None:
            self._texts[name] = text
        if made:
            self._made_by[name] = made

    def inside(self, body: ast.FunctionDef | ast.AsyncFunctionDef) -> Names:
        """These names as a function sees them: without those that are its parameters', with what it imports and defines itself."""
        kinds = (ast.Import, ast.ImportFrom, *FUNCTIONS, ast.Assign)
        local = [node for node in ast.walk(body) if isinstance(node, kinds) and node is not body]
        given = body.args
        parameters = (*given.posonlyargs, *given.args, *given.kwonlyargs, *(one for one in (given.vararg, given.kwarg) if one))
        hidden = [one.arg for one in parameters if one.arg == "open" or any(one.arg in table for table in self._tables())]
        if not local and not hidden:
            return self
        inside = Names(self.module, self.package, self.public_of)
        for mine, theirs in zip(self._tables(), inside._tables(), strict=True):
            theirs.update(mine)
        inside.methods.update(self.methods)
        inside._hides_open = self._hides_open
        for name in hidden:
            inside._bind(name)
        for node in local:
            inside.learn(node)
        return inside

    def _tables(self) -> tuple[dict[str, Any], ...]:
        return self.origins, self.bodies, self._texts, self._made_by

    # ---- what is known of an expression

    def dotted(self, node: ast.expr) -> str:
        """The name that something was imported under; empty where it was not imported."""
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        origin = self.origins.get(node.id)
        if origin is None:
            return "open" if node.id == "open" and not path and not self._hides_open else ""
        return ".".join((origin, *reversed(path)))

    def text(self, node: ast.expr) -> str | None:
        """What a text begins with, as far as it is written down."""
        while True:
            match node:
                case ast.Constant(value=str(text)):
                    return text
                case ast.Name(id=name):
                    return self._texts.get(name)
                case ast.JoinedStr(values=[first, *_]) | ast.FormattedValue(value=first) | ast.BinOp(left=first):
                    node = first
                case _:
                    return None

    def made(self, node: ast.expr) -> str:
        """The library call that a value came from. A cursor of a database in memory is in memory as well."""
        while isinstance(node, ast.Call):
            if any(isinstance(argument, ast.Constant) and argument.value == ":memory:" for argument in node.args):
                return ":memory:"
            made = self.dotted(node.func)
            if made or not isinstance(node.func, ast.Attribute):
                return made
            node = node.func.value
        return self._made_by.get(node.id, "") if isinstance(node, ast.Name) else ""


def at_once(node: ast.AST) -> list[ast.AST]:
    """The node and what runs with it: not the bodies of functions made in it."""
    found: list[ast.AST] = []
    pending: list[ast.AST] = [node]
    while pending:
        current = pending.pop()
        found.append(current)
        if isinstance(current, FUNCTIONS):
            pending.extend(reversed([*current.decorator_list, *current.args.defaults, *(one for one in current.args.kw_defaults if one)]))
        elif not isinstance(current, (ast.Lambda, ast.Name, ast.Constant)):
            pending.extend(reversed([child for child in ast.iter_child_nodes(current) if not isinstance(child, ast.Constant)]))
    return found


def origins_of(node: ast.Import | ast.ImportFrom, package: str) -> dict[str, str]:
    """Name → the dotted name that it is imported under."""
    if isinstance(node, ast.Import):
        return {
            alias.asname or alias.name.partition(".")[0]: alias.name if alias.asname else alias.name.partition(".")[0]
            for alias in node.names
        }
    base = base_of(node, package)
    return {alias.asname or alias.name: f"{base}.{alias.name}" if base else alias.name for alias in node.names if alias.name != "*"}


def base_of(node: ast.ImportFrom, package: str) -> str:
    """The module that a `from` statement names, a relative one included; more levels than there are count as all of them."""
    if not node.level:
        return node.module or ""
    parents = package.split(".") if package else []
    above = parents[: max(0, len(parents) - node.level + 1)]
    return ".".join([*above, *([node.module] if node.module else [])])
