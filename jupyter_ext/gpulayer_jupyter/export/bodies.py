"""What a function, a class or a module does outside the process when it runs, and what it runs in turn, as far as its own text tells.

What single calls do is known in `known_calls.py`. Runs nothing. Runs in the kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gpulayer_jupyter.export.known_calls import what_it_does
from gpulayer_jupyter.export.known_names import FUNCTIONS, Names, at_once, origins_of

_CALL_SHOWN = 60  # characters
_MADE_WITH = frozenset({"__init__", "__new__", "__post_init__", "__enter__", "__exit__", "__init_subclass__", "__set_name__"})


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


@dataclass(slots=True, eq=False)
class Body:
    """What runs as one: a function, a class as it makes an object, a module as it is imported.

    Args:
        title: its name.
        acts: its own.
        runs: what it runs of the same source.
        calls: dotted names of functions and classes that it calls, wherever they are.
        imports: dotted names that may be modules, those above each included.
    """

    title: str = ""
    acts: list[Act] = field(default_factory=list)
    runs: list[Body] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)


class BodyReader:
    """Reads what stands in one source, each body once.

    Args:
        names: what its global names stand for, which must not change between readings.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._known: dict[ast.AST, Body] = {}
        self._waiting: list[tuple[Names, ast.AST, Body]] = []

    def of(self, node: ast.AST) -> Body:
        """A function's, lambda's or class's body."""
        found = self._body(self._names, node)
        self._read_waiting()
        return found

    def of_module(self, tree: ast.Module, parts: Sequence[Sequence[ast.AST]]) -> Body:
        """What importing a module runs; `parts`: `at_once` of each of its statements."""
        found = self._known[tree] = Body(self._names.module)
        for statement, nodes in zip(tree.body, parts, strict=True):
            if not _is_main_guard(statement):
                for part in nodes:
                    self._note(self._names, part, found)
        self._read_waiting()
        return found

    def of_part(self, part: ast.AST) -> Body:
        """What one node of a statement does by itself; see `at_once`."""
        found = Body()
        self._note(self._names, part, found)
        self._read_waiting()
        return found

    def _read_waiting(self) -> None:
        # One after the other: functions that call functions may go deeper than Python's own stack.
        while self._waiting:
            names, node, into = self._waiting.pop()
            if isinstance(node, ast.ClassDef) and not any(_made_with(node)):
                for base in node.bases:  # one with a method of its own calls theirs by name, or not
                    self._note_called(names, base, into)
            for inside, statement in _statements(names, node):
                for part in at_once(statement):
                    self._note(inside, part, into)

    def _body(self, names: Names, node: ast.AST) -> Body:
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = Body(getattr(node, "name", ""))
            self._waiting.append((names, node, found))
        return found

    def _note(self, names: Names, part: ast.AST, into: Body) -> None:
        match part:
            case ast.Call(func=func, args=args, keywords=keywords):
                dotted = names.dotted(func)
                methods = names.methods.get(func.attr, ()) if isinstance(func, ast.Attribute) and not dotted else ()
                kind = what_it_does(part, dotted, text_of=names.text, made_by=names.made) if not methods else None
                if kind is not None:
                    into.acts.append(Act(kind, _shown(part), part.lineno, into.title))
                into.runs.extend(self._body(names, method) for method in methods)
                # What is given may be called: `map(keep, rows)`.
                for given in (func, *args, *(keyword.value for keyword in keywords)):
                    self._note_called(names, given, into)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                for decorator in part.decorator_list:
                    self._note_called(names, decorator, into)
            case ast.Import() | ast.ImportFrom():
                into.imports.extend(_modules(names, part))

    def _note_called(self, names: Names, node: ast.expr, into: Body) -> None:
        node = node.value if isinstance(node, ast.Starred) else node
        if isinstance(node, ast.Lambda):
            into.runs.append(self._body(names, node))
        elif isinstance(node, ast.Name) and node.id in names.bodies:
            into.runs.append(self._body(names, names.bodies[node.id]))
        elif dotted := names.dotted(node):
            into.calls.append(dotted)


def _statements(names: Names, body: ast.AST) -> Iterator[tuple[Names, ast.AST]]:
    """What runs when this is called."""
    match body:
        case ast.ClassDef():
            for method in _made_with(body):
                yield from _statements(names, method)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            inside = names.inside(body)
            yield from ((inside, statement) for statement in body.body)
        case ast.Lambda():
            yield names, body.body


def _made_with(body: ast.ClassDef) -> Iterator[ast.stmt]:
    """The methods that run as an object of the class is made or entered."""
    yield from (method for method in body.body if isinstance(method, FUNCTIONS) and method.name in _MADE_WITH)


def _modules(names: Names, node: ast.Import | ast.ImportFrom) -> dict[str, None]:
    imported = [*origins_of(node, names.package).values(), *(alias.name for alias in node.names if isinstance(node, ast.Import))]
    parts = [dotted.split(".") for dotted in imported]
    return dict.fromkeys(".".join(part[:depth]) for part in parts for depth in range(1, len(part) + 1))


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
