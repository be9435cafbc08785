"""What one statement reads, binds and may change, found by reading its syntax tree; nothing is run.

`uses` holds every reading of a global name with how it is used, so that `slicer.py` can tell, knowing what the name stands
for, whether its value may be changed. "Later" is what happens when a function, lambda or generator made here is called.
Runs in the kernel.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from gpulayer_jupyter.export import libraries
from gpulayer_jupyter.export.scopes import bound_in
from gpulayer_jupyter.export.usage import Usage, UsageReader

_CONDITIONAL = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.With, ast.AsyncWith, ast.Match)


@dataclass(frozen=True, slots=True)
class Use(Usage):
    """One reading of a global name; of a module that a function imports for itself the name is `inner_import` of it.

    Args:
        line: in the parsed text.
        later: when a function made here is called, not when the statement runs.
        soft: nobody minds when the name is not bound (class scope, annotations).
    """

    name: str = ""
    line: int = 0
    later: bool = False
    soft: bool = False


def inner_import(origin: str) -> str:
    """What stands for a name that a function's own import binds, which no cell can bind."""
    return f"<import {origin}>"


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
    inner_imports: dict[str, tuple[str, bool]] = field(default_factory=dict)  # `inner_import` → dotted origin, whether it is a module
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
    imported: dict[str, str] = field(default_factory=dict)  # what its own imports have bound → `inner_import`


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

    def _global_name(self, name: str) -> str | None:
        if self._is_global(name)[0]:
            return name
        for scope in reversed(self._scopes):
            if name in scope.imported:
                return scope.imported[name]
            if name in scope.bound:
                break
        return None

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._read(node)
        elif isinstance(node.ctx, ast.Del) and not self._scopes:
            self.effects.deletes.add(node.id)
            self._add(node.id, node, Usage("read"))
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
        name = node.id if is_global else self._global_name(node.id)
        if name is not None:
            self._add(name, node, self._classify(node), soft=perhaps or node.id in self._walruses or name != node.id)

    def _add(self, name: str, node: ast.Name, usage: Usage, *, soft: bool = False) -> None:
        facts = (usage.how, usage.path, usage.callee, usage.result_used, usage.chained, usage.inside)
        self.effects.uses.append(Use(*facts, name=name, line=node.lineno, later=self._later > 0, soft=soft or self._soft > 0))

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
                self._add(node.target.id, node.target, Usage("changed"), soft=perhaps)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            origin = alias.name if alias.asname else bound
            if self._scopes:
                self._import_inside(bound, origin, is_module=True)
            else:
                self.effects.origins[bound] = origin
                self.effects.modules.add(bound)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if self._scopes:
                self._import_inside(alias.asname or alias.name, f"{module}.{alias.name}", is_module=False)
            elif alias.name == "*":
                self.effects.star_imports.append(module)
            else:
                self.effects.origins[alias.asname or alias.name] = f"{module}.{alias.name}"

    def _import_inside(self, bound: str, origin: str, *, is_module: bool) -> None:
        if bound not in self._scopes[-1].globals:
            self._scopes[-1].imported[bound] = inner_import(origin)
            self.effects.inner_imports[inner_import(origin)] = origin, is_module

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = [*node.args, *(keyword.value for keyword in node.keywords)] if called in libraries.CALL_ARGUMENTS else []
        # Who is known to call what it is given does so here, which counts besides what the function would do later.
        for function in (node.func, *given):
            if isinstance(function, ast.Lambda):
                self._enter_function(function, [function.body], at_once=True)
        if called in ("eval", "exec") and isinstance(node.func, ast.Name):
            self._visit_text(node)

    def _visit_text(self, node: ast.Call) -> None:
        """`eval("log.append(1)")`: what the text does, where it is written down."""
        match node.args:
            case [ast.Constant(value=str(text))]:
                try:
                    tree = ast.parse(text.strip())
                except (SyntaxError, ValueError, RecursionError, MemoryError):
                    return  # running it says what is wrong
                for inner in ast.walk(tree):
                    if hasattr(inner, "lineno"):
                        inner.lineno = node.lineno
                self._learn_parents(tree)
                for statement in tree.body:
                    self.visit(statement)

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

    def _enter_function(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        body: list[ast.stmt] | list[ast.expr],
        *,
        at_once: bool = False,
    ) -> None:
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
        self._later += not at_once
        self._functions += 1
        for inner in body:
            self.visit(inner)
        self._functions -= 1
        self._later -= not at_once
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
