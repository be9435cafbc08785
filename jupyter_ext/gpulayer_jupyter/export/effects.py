"""What one statement reads, binds and may change, found by reading its syntax tree; nothing is run.

`uses` holds every reading of a global name with how it is used, so that `slicer.py` can tell, knowing what the name stands
for, whether its value may be changed. "Later" is what happens when a function, lambda or generator made here is called.
Runs in the kernel.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from gpulayer_jupyter.export.scopes import bound_in
from gpulayer_jupyter.export.usage import How, UsageReader

_CONDITIONAL = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.With, ast.AsyncWith, ast.Match)


@dataclass(frozen=True, slots=True)
class Use:
    """One reading of a global name.

    Args:
        path: the attributes asked of it, as far as they are plain: `np.random.seed` is ("random", "seed").
        callee: for an argument, the dotted name that is called; empty when it is no plain global name.
        line: in the parsed text.
        later: when a function made here is called, not when the statement runs.
        soft: nobody minds when the name is not bound (class scope, annotations).
    """

    name: str
    how: How
    path: tuple[str, ...] = ()
    callee: tuple[str, ...] = ()
    line: int = 0
    later: bool = False
    soft: bool = False
    result_used: bool = True


@dataclass(slots=True)
class Effects:
    """What a statement does with global names."""

    uses: list[Use] = field(default_factory=list)
    binds: set[str] = field(default_factory=set)
    may_bind: set[str] = field(default_factory=set)
    later_binds: set[str] = field(default_factory=set)
    deletes: set[str] = field(default_factory=set)
    origins: dict[str, str] = field(default_factory=dict)  # imported name → dotted origin
    modules: set[str] = field(default_factory=set)  # of these, the ones bound by `import`
    star_imports: list[str] = field(default_factory=list)
    star_is_unknown: bool = False  # what a star import of this statement binds is not known
    awaits_at: int | None = None
    bound_at: dict[str, int] = field(default_factory=dict)  # in a compound statement: the first line that binds the name


_known: WeakKeyDictionary[ast.stmt, Effects] = WeakKeyDictionary()


def effects_of(statement: ast.stmt) -> Effects:
    """Read one top-level statement; a history's are asked at each submit, and read once."""
    known = _known.get(statement)
    if known is None:
        visitor = _Visitor(statement)
        visitor.visit(statement)
        known = visitor.effects
        if not known.star_imports:  # what those bind is added later, by somebody who knows the module
            _known[statement] = known
    return known


def _first_bindings(statement: ast.stmt) -> dict[str, int]:
    adds_to = {node.target for node in ast.walk(statement) if isinstance(node, ast.AugAssign)}
    first: dict[str, int] = {}
    for node in ast.walk(statement):
        if node not in adds_to and isinstance(node, (ast.stmt, ast.Name, ast.ExceptHandler, ast.pattern)):
            own = [node] if not isinstance(node, _CONDITIONAL) else []
            for name in bound_in(own)[0] if not isinstance(node, ast.AugAssign) else ():
                first[name] = min(node.lineno, first.get(name, node.lineno))
    return first


@dataclass(slots=True)
class _Scope:
    is_class: bool
    bound: set[str]
    globals: set[str]
    surely: set[str] = field(default_factory=set)  # of a class: what it has bound by now


class _Visitor(UsageReader, ast.NodeVisitor):
    def __init__(self, statement: ast.stmt) -> None:
        super().__init__(statement)
        self.effects = Effects()
        self._scopes: list[_Scope] = []
        self._soft = 0
        self._functions = 0
        self._walruses: set[str] = set()  # names bound by `:=` further left
        self._statement = statement
        bound, _ = bound_in([statement])
        certain = self._certain(statement)
        if isinstance(statement, _CONDITIONAL):
            self.effects.bound_at = _first_bindings(statement)
        self.effects.binds = bound & certain
        self.effects.may_bind = bound - certain

    @staticmethod
    def _certain(statement: ast.stmt) -> set[str]:
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            targets = [item.optional_vars for item in statement.items if item.optional_vars is not None]
            return bound_in(targets)[0]
        if isinstance(statement, _CONDITIONAL):
            return set()
        walruses = {node.target.id for node in ast.walk(statement) if isinstance(node, ast.NamedExpr)}
        return bound_in([statement])[0] - walruses

    # ---- names

    def _is_global(self, name: str) -> tuple[bool, bool]:
        """Whether a reading here reaches the globals, and whether only perhaps."""
        for depth, scope in enumerate(reversed(self._scopes)):
            if name in scope.globals:
                return True, False
            if scope.is_class:
                if depth == 0 and name in scope.bound:
                    return name not in scope.surely, True
                continue
            if name in scope.bound:
                return False, False
        return True, False

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._read(node)
        elif isinstance(node.ctx, ast.Del) and not self._scopes:
            self.effects.deletes.add(node.id)
            self._add(node, "read")
        elif self._scopes and any(node.id in scope.globals for scope in self._scopes[-1:]):
            self._bind_from_inside(node.id)
        elif self._scopes and self._scopes[-1].is_class and isinstance(node.ctx, ast.Store) and self._is_straight(node):
            self._scopes[-1].surely.add(node.id)

    def _is_straight(self, node: ast.AST) -> bool:
        """Whether nothing in the class decides first if this is executed."""
        parent = self._parents.get(node)
        while parent is not None and not isinstance(parent, ast.ClassDef):
            if isinstance(parent, _CONDITIONAL):
                return False
            parent = self._parents.get(parent)
        return True

    def _bind_from_inside(self, name: str) -> None:
        (self.effects.later_binds if self._later else self.effects.may_bind).add(name)

    def _read(self, node: ast.Name) -> None:
        is_global, perhaps = self._is_global(node.id)
        if not is_global:
            return
        how, path, callee, result_used = self._classify(node)
        self._add(node, how, path, callee, soft=perhaps or node.id in self._walruses, result_used=result_used)

    def _add(
        self,
        node: ast.Name,
        how: How,
        path: tuple[str, ...] = (),
        callee: tuple[str, ...] = (),
        *,
        soft: bool = False,
        result_used: bool = True,
    ) -> None:
        self.effects.uses.append(
            Use(
                name=node.id,
                how=how,
                path=path,
                callee=callee,
                line=node.lineno,
                later=self._later > 0,
                soft=soft or self._soft > 0,
                result_used=result_used,
            )
        )

    # ---- statements and scopes

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)  # read before the targets are bound
        for target in node.targets:
            self.visit(target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.visit(node.target)
        self._walruses.add(node.target.id)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            is_global, perhaps = self._is_global(node.target.id)
            if is_global:
                self._add(node.target, "changed", soft=perhaps)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        if self._scopes:
            return
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            self.effects.origins[bound] = alias.name if alias.asname else bound
            self.effects.modules.add(bound)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if self._scopes:
            return
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self.effects.star_imports.append(module)
            else:
                self.effects.origins[alias.asname or alias.name] = f"{module}.{alias.name}"

    def _annotation(self, node: ast.expr | None) -> None:
        if node is not None:
            self._soft += 1
            self.visit(node)
            self._soft -= 1

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._annotation(node.annotation)
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)
        elif not self._scopes and isinstance(node.target, ast.Name):
            self.effects.binds.discard(node.target.id)  # `x: int` binds nothing

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._enter_function(node, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._enter_function(node, [node.body])

    def _enter_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, body: list[ast.stmt] | list[ast.expr]) -> None:
        arguments = node.args
        for default in (*arguments.defaults, *(value for value in arguments.kw_defaults if value is not None)):
            self.visit(default)
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        names = [argument for argument in every if argument is not None]
        for argument in names:
            self._annotation(argument.annotation)
        if not isinstance(node, ast.Lambda):
            self._annotation(node.returns)
        bound, declared = bound_in(body)
        type_names = {parameter.name for parameter in getattr(node, "type_params", ())}
        self._scopes.append(_Scope(False, bound | {argument.arg for argument in names} | type_names, declared))
        self._later += 1
        self._functions += 1
        for inner in body:
            self.visit(inner)
        self._functions -= 1
        self._later -= 1
        self._scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for outer in (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)):
            self.visit(outer)
        bound, declared = bound_in(node.body)
        self._scopes.append(_Scope(True, bound, declared))
        for inner in node.body:
            self.visit(inner)
        self._scopes.pop()

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        first, *others = node.generators
        self._awaited(node, any(generator.is_async for generator in node.generators))
        self.visit(first.iter)
        targets: set[str] = set()
        for generator in node.generators:
            targets |= bound_in([generator.target])[0]
        self._scopes.append(_Scope(False, targets, set()))
        lazy = isinstance(node, ast.GeneratorExp)
        # A generator runs when somebody asks it, which may be at once: what it reads counts both ways.
        for later in (False, True) if lazy else (False,):
            self._later += later
            for generator in (first, *others):
                if generator is not first:
                    self.visit(generator.iter)
                for condition in generator.ifs:
                    self.visit(condition)
            for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
                self.visit(part)
            self._later -= later
        self._scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def _awaited(self, node: ast.expr | ast.stmt, awaits: bool = True) -> None:
        if awaits and not self._functions and self.effects.awaits_at is None:
            self.effects.awaits_at = node.lineno

    def visit_Await(self, node: ast.Await) -> None:
        self._awaited(node)
        self.generic_visit(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> None:
        self._awaited(node)
        self.generic_visit(node)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> None:
        self._awaited(node)
        self.generic_visit(node)
