"""What running a statement does outside the process: its own calls, and those in functions, methods and local modules that it runs.

What single calls do is known in `known_calls.py`. Runs nothing. Runs in the kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpulayer_jupyter.export.known_calls import what_it_does
from gpulayer_jupyter.export.known_names import FUNCTIONS, Names, at_once, origins_of

_CALL_SHOWN = 60  # characters
_MADE_WITH = frozenset({"__init__", "__new__", "__post_init__", "__enter__", "__exit__", "__init_subclass__", "__set_name__"})
_Body = tuple[Names, ast.AST]
"""A function, lambda, class or module with the names that it sees."""


@dataclass(frozen=True, slots=True)
class Act:
    """One call that reaches outside, at a line of the statement that led to it; `inside`: the function or module where it stands."""

    kind: str
    call: str
    line: int
    inside: str = ""

    def told(self) -> str:
        """`writes files (np.save in keep)`."""
        return f"{self.kind} ({self.call}{f' in {self.inside}' if self.inside else ''})"


class OutsideActs:
    """Reads the statements of one history in order.

    Args:
        names: what is known of its names.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._known: dict[ast.AST, list[Act]] = {}  # what is called → what that leads to
        self._version = names.version

    def run(self, statement: ast.stmt) -> list[Act]:
        """What running this statement does outside the process; what it binds is taken in."""
        parts = at_once(statement)
        if self._names.version != self._version:
            self._version = self._names.version
            self._known.clear()
        found: list[Act] = []
        for part in parts:
            line = getattr(part, "lineno", 1)
            found.extend(_own_act(self._names, part))
            for body in _runs(self._names, part):
                found.extend(replace(act, line=line) for act in self._leads_to(body))
        self._names.learn(statement, parts)
        return found

    def run_file(self, tree: ast.Module, *, line: int, title: str) -> list[Act]:
        """The same of a file that `%run` runs among the history's names, at this line of a cell."""
        return [replace(act, line=line, inside=act.inside or title) for statement in tree.body for act in self.run(statement)]

    def _leads_to(self, body: _Body) -> list[Act]:
        # Histories call the same function again and again.
        acts = self._known.get(body[1])
        if acts is None:
            acts = self._known[body[1]] = list(_acts_behind(body))
        return acts


def _acts_behind(first: _Body) -> Iterator[Act]:
    seen: set[ast.AST] = {first[1]}
    pending = [first]
    while pending:
        names, body = pending.pop()
        for inside, statement in _statements(names, body):
            for part in at_once(statement):
                yield from (replace(act, inside=_title(names, body)) for act in _own_act(inside, part))
                for called in _runs(inside, part):
                    if called[1] not in seen:
                        seen.add(called[1])
                        pending.append(called)


def _statements(names: Names, body: ast.AST) -> Iterator[tuple[Names, ast.AST]]:
    """What runs when this is called or imported."""
    match body:
        case ast.ClassDef():
            for method in body.body:
                if isinstance(method, FUNCTIONS) and method.name in _MADE_WITH:
                    yield from _statements(names, method)
        case ast.Module():
            yield from ((names, statement) for statement in body.body if not _is_main_guard(statement))
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            inside = names.inside(body)
            yield from ((inside, statement) for statement in body.body)
        case ast.Lambda():
            yield names, body.body


def _own_act(names: Names, part: ast.AST) -> Iterator[Act]:
    """What a call does by itself, where it calls no method of the program's own."""
    if not isinstance(part, ast.Call):
        return
    dotted = names.dotted(part.func)
    if isinstance(part.func, ast.Attribute) and not dotted and part.func.attr in names.methods:
        return
    kind = what_it_does(part, dotted, text_of=names.text, made_by=names.made)
    if kind is not None:
        yield Act(kind, _shown(part), part.lineno)


def _runs(names: Names, part: ast.AST) -> Iterator[_Body]:
    """The functions, classes and modules of the program's own that this part of a statement runs."""
    match part:
        case ast.Call(func=func, args=args, keywords=keywords):
            if isinstance(func, ast.Attribute) and not names.dotted(func):
                yield from ((names, method) for method in names.methods.get(func.attr, ()))
            # What is given may be called: `map(keep, rows)`.
            for given in (func, *args, *(keyword.value for keyword in keywords)):
                yield from _body_of(names, given)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            for decorator in part.decorator_list:
                yield from _body_of(names, decorator)
        case ast.Import() | ast.ImportFrom():
            yield from _modules(names, part)


def _body_of(names: Names, node: ast.expr) -> Iterator[_Body]:
    node = node.value if isinstance(node, ast.Starred) else node
    if isinstance(node, ast.Lambda):
        yield names, node
    elif isinstance(node, ast.Name) and node.id in names.bodies:
        yield names, names.bodies[node.id]
    else:
        yield from _body_behind(names, names.dotted(node))


def _body_behind(names: Names, dotted: str) -> Iterator[_Body]:
    """The function or class of a local module; a module may pass on what another one defines."""
    followed: set[str] = set()
    while dotted and dotted not in followed:
        followed.add(dotted)
        module, _, name = dotted.rpartition(".")
        theirs = names.sources.names(module) if module else None
        if theirs is None:
            return
        if name in theirs.bodies:
            yield theirs, theirs.bodies[name]
            return
        dotted = theirs.origin_of(name)


def _modules(names: Names, node: ast.Import | ast.ImportFrom) -> Iterator[_Body]:
    imported = [*origins_of(node, names.package).values(), *(alias.name for alias in node.names if isinstance(node, ast.Import))]
    parts = [dotted.split(".") for dotted in imported]
    for module in dict.fromkeys(".".join(part[:depth]) for part in parts for depth in range(1, len(part) + 1)):
        theirs = names.sources.names(module)
        if theirs is not None and theirs.tree is not None:
            yield theirs, theirs.tree


def _title(names: Names, body: ast.AST) -> str:
    return names.module if isinstance(body, ast.Module) else getattr(body, "name", "")


def _is_main_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test))


def _shown(call: ast.Call) -> str:
    """What is called: `np.save`, `Path(…).write_text`."""
    text = ""
    node: ast.expr = call.func
    while len(text) <= _CALL_SHOWN:
        match node:
            case ast.Attribute(value=value, attr=attr):
                text, node = f".{attr}{text}", value
            case ast.Call(func=func):
                text, node = f"(…){text}", func
            case ast.Subscript(value=value):
                text, node = f"[…]{text}", value
            case ast.Name(id=name):
                return f"{name}{text}"
            case _:
                return f"(…){text}"
    return f"…{text[-_CALL_SHOWN:]}"
