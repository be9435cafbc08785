"""Names that a program would read and that nothing binds: surely, or only perhaps. Pure. Runs in the kernel."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gpulayer_jupyter.export.effects import Effects, Use

MODULE_NAMES = frozenset({"__name__", "__file__", "__doc__", "__builtins__", "__spec__", "__package__", "__loader__", "__annotations__"})
_BUILTINS = frozenset(dir(builtins)) - {"get_ipython"}
"""As they are before a cell adds one."""
_BIND_ANYTHING = frozenset({"exec", "eval", "globals", "locals", "vars"})
_CATCH_NAME_ERRORS = frozenset({"NameError", "Exception", "BaseException"})


@dataclass(frozen=True, slots=True)
class Missing:
    """A name that a kept statement reads and that no statement of the history binds.

    Args:
        piece: index of the statement.
        line: in the piece's parsed text.
        certain: the statement can't run without it; else it is read when a function is called, in a branch, or perhaps never.
        deleted: index of the statement that deleted it.
    """

    name: str
    piece: int
    line: int
    certain: bool
    deleted: int | None = None


def is_builtin(name: str) -> bool:
    """Whether plain Python knows the name without anybody binding it."""
    return name in MODULE_NAMES or name in _BUILTINS or name == "display"


def unbound_uses(effects: Effects, bound: Collection[str]) -> list[Use]:
    """What a statement reads at once, though neither these names nor the statement itself binds it before."""
    return [
        use
        for use in effects.uses
        if not (use.later or use.name in bound or is_builtin(use.name) or effects.bound_at.get(use.name, use.line + 1) <= use.line)
    ]


def missing_names(
    nodes: Sequence[ast.stmt],
    effects: Sequence[Effects],
    unbound: Sequence[Sequence[Use]],
    deleted: Sequence[Mapping[str, int]],
    needed: Sequence[int],
    bound: Collection[str],
) -> list[Missing]:
    """The missing names of the needed statements, each once.

    Args:
        nodes: all statements of history and cell.
        effects: theirs.
        unbound: their `unbound_uses`.
        deleted: for each, the names among these that were deleted → the statement that did it.
        needed: indices of those that travel.
        bound: names that something binds.
    """
    anything = any(_binds_anything(effects[index]) for index in needed)
    somewhere = set[str]().union(*(found.binds | found.may_bind | found.later_binds for found in effects))
    found: dict[str, Missing] = {}
    for index in needed:
        if not unbound[index]:
            continue
        certain_reads = _certain_reads(nodes[index])
        for use in unbound[index]:
            certain = (use.name, use.line) in certain_reads and not use.soft and not anything
            if not certain and use.name in effects[index].binds | effects[index].may_bind:
                continue  # `try: x` with `except NameError: x = …`
            if use.name not in found or (certain and not found[use.name].certain):
                gone = deleted[index].get(use.name)
                surely = certain and (use.name not in somewhere or gone is not None)
                found[use.name] = Missing(use.name, index, use.line, certain=surely, deleted=gone)
    for index in needed:
        for use in effects[index].uses:
            if use.later and use.name not in bound and not is_builtin(use.name) and use.name not in found:
                found[use.name] = Missing(use.name, index, use.line, certain=False)
    return list(found.values())


def _binds_anything(effects: Effects) -> bool:
    return effects.star_is_unknown or any(use.name in _BIND_ANYTHING for use in effects.uses)


def _certain_reads(node: ast.stmt) -> set[tuple[str, int]]:
    reader = _CertainReads()
    reader.visit(node)
    return reader.found


class _CertainReads(ast.NodeVisitor):
    """Collects names with their lines where nothing decides first whether they are read."""

    def __init__(self) -> None:
        self.found: set[tuple[str, int]] = set()

    def visit_Name(self, node: ast.Name) -> None:
        self.found.add((node.id, node.lineno))

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        self.visit(node.test)

    visit_While = visit_IfExp = visit_If  # noqa: N815

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.visit(node.values[0])

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        caught = [name.id for handler in node.handlers if handler.type for name in ast.walk(handler.type) if isinstance(name, ast.Name)]
        if not _CATCH_NAME_ERRORS.intersection(caught) and all(handler.type for handler in node.handlers):
            for inner in node.body:
                self.visit(inner)
        for inner in node.finalbody:
            self.visit(inner)

    visit_TryStar = visit_Try  # noqa: N815

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            self.visit(item)
        if "suppress" not in "".join(ast.unparse(item.context_expr) for item in node.items):
            for inner in node.body:
                self.visit(inner)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for outer in (*node.decorator_list, *node.args.defaults, *(value for value in node.args.kw_defaults if value is not None)):
            self.visit(outer)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for default in (*node.args.defaults, *(value for value in node.args.kw_defaults if value is not None)):
            self.visit(default)
