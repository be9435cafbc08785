"""Which names a scope binds itself, by Python's rules. Runs in the kernel."""

from __future__ import annotations

import ast
from collections.abc import Iterable


def bound_in(nodes: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """Names that these nodes bind in their own scope, and names that they declare global."""
    binder = _Binder()
    for node in nodes:
        binder.visit(node)
    return binder.bound - binder.globals - binder.nonlocals, binder.globals


class _Binder(ast.NodeVisitor):
    """Collects what one scope binds, without entering the scopes inside it."""

    def __init__(self) -> None:
        self.bound: set[str] = set()
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self._inside_comprehension = 0

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load) and not self._inside_comprehension:
            self.bound.add(node.id)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.bound.add(node.target.id)
        self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.bound.add(node.name)
        for outer in node.decorator_list:
            self.visit(outer)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815
    visit_ClassDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        pass

    def _comprehension(self, node: ast.AST) -> None:
        self._inside_comprehension += 1
        self.generic_visit(node)
        self._inside_comprehension -= 1

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def visit_alias(self, node: ast.alias) -> None:
        if node.name != "*":
            self.bound.add(node.asname or node.name.partition(".")[0])

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.bound.add(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self.bound.add(node.name)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs  # noqa: N815

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.bound.add(node.rest)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.globals.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.nonlocals.update(node.names)
