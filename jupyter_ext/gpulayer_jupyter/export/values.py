"""What the global names of a history stand for at one moment, as far as the syntax tells, and what a use may do to it.

In doubt a use changes what it touches. Pure. Runs in the kernel.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import Literal

from gpulayer_jupyter.export import libraries
from gpulayer_jupyter.export.effects import Use

_SETTERS = (("setattr",), ("delattr",))
_DEFAULTDICT = "collections.defaultdict"
Kind = Literal["module", "imported", "def", "class", "value"]


@dataclass(slots=True)
class Value:
    """What one name stands for.

    Args:
        defs: the statements that make it up.
        origin: the dotted name that it was imported under.
        objects: statements that made the objects which it may hold; names that share one may see each other's changes.
        later: what calling it would read.
        later_binds: the global names that calling it would bind.
        families: whose random numbers calling it may draw.
        roots: libraries that it was made with.
        atom: a number, text or the like: nothing can change it in place.
        container: a list, dict or the like, which going through it does not use up.
        stateful: of a function: a default value keeps what calls leave in it; of a class: its objects share something.
        fickle: of an object: looking up a part of it may change it; of a class: of its objects.
        returns: of a function: global names whose values it hands out.
        part_of: modules of nobody knows whom whose own objects it may be.
        unfinished: statements that raised and may have changed it before that.
        deleted: there is no such name any more.
        quiet: of a function: what it does with what it is given and with global names; None where it may change that.
    """

    defs: list[int]
    kind: Kind = "value"
    origin: str | None = None
    objects: set[int] = field(default_factory=set)
    later: frozenset[Use] = frozenset()
    later_binds: frozenset[str] = frozenset()
    families: frozenset[str] = frozenset()
    roots: frozenset[str] = frozenset()
    atom: bool = False
    container: bool = False
    stateful: bool = False
    fickle: bool = False
    returns: frozenset[str] = frozenset()
    part_of: frozenset[str] = frozenset()
    unfinished: frozenset[int] = frozenset()
    deleted: bool = False
    quiet: tuple[Use, ...] | None = None


class Values(dict[str, Value]):
    """Name → what it stands for."""

    def fork(self) -> Values:
        """These values, to be changed without changing these."""
        return Values({name: replace(value) for name, value in self.items()})

    def _is_quiet(self, function: str, above: frozenset[str]) -> bool:
        """Whether calling the function is known to leave what it is given, and everything else, as it is."""
        value = self[function]
        if value.quiet is None or function in above:
            return False
        return all(self._is_quiet_use(use, above | {function}) for use in value.quiet)

    def _is_quiet_use(self, use: Use, above: frozenset[str]) -> bool:
        callee = use.name if use.how == "called" else use.callee[0] if use.how == "argument" and len(use.callee) == 1 else ""
        known = self.get(callee)
        if use.how == "read":
            return True
        if callee and known is not None and known.kind == "def":
            return self._is_quiet(callee, above)
        if use.how == "called":
            return known is None and callee in libraries.PURE_BUILTINS
        if use.how == "method":
            return libraries.leaves_arguments(self.dotted(use) or "")
        return use.how == "argument" and self.leaves_arguments(use.callee) and not libraries.uses_up_iterators(callee)

    def may_run(self, use: Use) -> bool:
        if use.how == "read":
            return self._changes_when_read(use)
        if use.how != "argument" or not self.leaves_arguments(use.callee):
            return True
        return use.callee[-1] in libraries.CALL_ARGUMENTS

    def dotted(self, use: Use) -> str | None:
        value = self.get(use.name)
        if value is None or value.origin is None:
            return None
        return ".".join((value.origin, *use.path))

    def leaves_arguments(self, callee: tuple[str, ...]) -> bool:
        if not callee:
            return False
        value = self.get(callee[0])
        if value is None:
            return len(callee) == 1 and callee[0] in libraries.PURE_BUILTINS
        if value.kind == "def" and len(callee) == 1:
            return self._is_quiet(callee[0], frozenset())
        if value.origin is None:
            return bool(value.roots) and value.roots <= libraries.DRAWING and len(callee) > 1  # `axes.plot(frame.x)`
        return libraries.leaves_arguments(".".join((value.origin, *callee[1:])))

    def may_change(self, use: Use) -> bool:
        value = self.get(use.name)
        if value is None or value.atom:
            return False
        if use.how == "read":
            return self._changes_when_read(use)
        if use.how == "changed":
            return value.kind in ("value", "imported") or bool(use.path)
        if use.how == "iterated":
            return value.kind == "value" and not value.container
        if use.how == "base":
            return False
        if use.how == "argument":
            if value.kind in ("def", "class") and use.callee in _SETTERS and use.callee[0] not in self:
                return True
            if value.kind in ("module", "def", "class"):
                return value.stateful and self.may_run(use)
            single = use.callee[0] if len(use.callee) == 1 and use.callee[0] not in self else ""
            return not self.leaves_arguments(use.callee) or (libraries.uses_up_iterators(single) and not value.container)
        if value.kind == "module":
            return use.how == "method" and not use.result_used and not libraries.only_shows(self.dotted(use) or "")
        if value.kind == "imported":
            return use.how == "method" and not use.result_used
        if value.kind == "class" and use.how == "called":
            return value.stateful and (use.chained or not use.result_used)
        return value.kind == "value" or use.how == "method" or value.stateful

    def _changes_when_read(self, use: Use) -> bool:
        value = self.get(use.name)
        return use.inside and value is not None and value.fickle and value.kind == "value"

    def handed_out(self, use: Use) -> frozenset[str]:
        """The names whose values a call hands out to whoever calls a method on its result."""
        value = self.get(use.name)
        return value.returns if value is not None and use.chained else frozenset()

    def is_fickle(self, node: ast.stmt) -> bool:
        """Whether the statement binds an object that looking at may change."""
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            return False
        made = node.value
        if isinstance(made, ast.Call):
            known = self.get(getattr(made.func, "id", ""))
            return (known is not None and known.fickle and known.kind == "class") or self._dotted_node(made.func) == _DEFAULTDICT
        known = self.get(made.id) if isinstance(made, ast.Name) else None
        return known is not None and known.fickle and known.kind == "value"

    def _dotted_node(self, node: ast.expr) -> str:
        """The dotted name under which this was imported; empty where it was not."""
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.insert(0, node.attr)
            node = node.value
        origin = self[node.id].origin if isinstance(node, ast.Name) and node.id in self else None
        return ".".join((origin, *path)) if origin else ""

    def part_of(self, node: ast.stmt) -> frozenset[str]:
        """The modules whose own objects the names that this statement binds stand for: `table = settings.TABLE`."""
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            return frozenset()
        root = node.value
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        value = self.get(root.id) if isinstance(root, ast.Name) else None
        if value is None or (root is node.value and value.kind == "module"):
            return frozenset()
        return value.part_of | ({value.origin.partition(".")[0]} if value.origin else frozenset())

    def is_stateful(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Whether what a default value holds can be changed by a call, or by what the call calls."""
        defaults = [*node.args.defaults, *(value for value in node.args.kw_defaults if value is not None)]
        return any(not self._is_atom(default) and not self._is_steady(default) for default in defaults)

    def _is_steady(self, node: ast.expr) -> bool:
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        value = self.get(root.id) if isinstance(root, ast.Name) else None
        if isinstance(root, ast.Name) and value is None:
            return True  # a builtin
        return value is not None and value.kind != "value" and not value.stateful

    def wraps_steadily(self, decorator: ast.expr) -> bool:
        """Whether a decorator is known to give back a function that does what the decorated one does."""
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        parts: list[str] = []
        while isinstance(called, ast.Attribute):
            parts.insert(0, called.attr)
            called = called.value
        return isinstance(called, ast.Name) and called.id in self and self.leaves_arguments((called.id, *parts))

    def is_container(self, node: ast.stmt) -> bool:
        """Whether what the statement binds is surely a list or the like."""
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not _binds_whole(node):
            return False
        kinds = (ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Set, ast.SetComp, ast.Tuple)
        if isinstance(node.value, ast.Call):
            called = getattr(node.value.func, "id", "")
            own = called in ("list", "dict", "set", "tuple", "sorted", "range", "frozenset") and called not in self
            in_pieces = any(keyword.arg in ("chunksize", "iterator") for keyword in node.value.keywords)
            return own or (not in_pieces and libraries.makes_container(self._dotted_node(node.value.func)))
        return isinstance(node.value, kinds)

    def atoms_of(self, node: ast.stmt) -> set[str]:
        """Names that this statement binds to a number, text or the like."""
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if self._is_atom(node.value):
                return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            before = self.get(node.target.id)
            if before is not None and before.atom and self._is_atom(node.value):
                return {node.target.id}
        return set()

    def _is_atom(self, node: ast.expr) -> bool:
        match node:
            case ast.Constant() | ast.JoinedStr():
                return True
            case ast.Name():
                value = self.get(node.id)
                return value is not None and value.atom
            case ast.UnaryOp():
                return self._is_atom(node.operand)
            case ast.BinOp():
                return self._is_atom(node.left) and self._is_atom(node.right)
            case ast.BoolOp():
                return all(self._is_atom(part) for part in node.values)
            case ast.Compare():
                return self._is_atom(node.left) and all(self._is_atom(part) for part in node.comparators)
            case ast.Tuple():
                return all(self._is_atom(part) for part in node.elts)
            case ast.Call(func=ast.Name(id=name)):
                return name in libraries.ATOM_MAKERS and name not in self
        return False


def _binds_whole(node: ast.Assign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return all(isinstance(target, ast.Name) for target in targets)
