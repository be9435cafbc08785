"""Functions that only look: `def total(net): return sum(p.sum() for p in net.parameters())` changes nothing.

A statement of an earlier cell that shows what such a function returns need not run on ranks. Pure. Runs in the kernel.
"""

from __future__ import annotations

import ast
from weakref import WeakKeyDictionary

from gpulayer_jupyter.export.effects import Use, effects_of
from gpulayer_jupyter.export.scopes import bound_in

_DOES_MORE = (
    ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Delete,
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda,
)  # fmt: skip


_known: WeakKeyDictionary[ast.stmt, tuple[Use, ...] | None] = WeakKeyDictionary()


def quiet_uses(node: ast.stmt) -> tuple[Use, ...] | None:
    """What a function does with its own and with global names, to be judged where it is called; None where it may change some.

    Its own names are looked at as a statement's global ones are: what is read of them may belong to an argument.
    """
    if not isinstance(node, ast.FunctionDef) or node.decorator_list:
        return None
    if node not in _known:
        _known[node] = _read(node)
    return _known[node]


def returned_names(node: ast.stmt) -> frozenset[str]:
    """The global names whose values a function or a named lambda may hand out as they are."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        own = bound_in(node.body)[0] | _arguments(node.args)
        given = [part.value for part in ast.walk(node) if isinstance(part, ast.Return)]
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
        own = _arguments(node.value.args)
        given = [node.value.body]
    else:
        return frozenset()
    found: set[str] = set()
    for value in given:
        while isinstance(value, (ast.Attribute, ast.Subscript)):
            value = value.value
        if isinstance(value, ast.Name):
            found.add(value.id)
    return frozenset(found - own)


def _arguments(arguments: ast.arguments) -> set[str]:
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {argument.arg for argument in given if argument is not None}


def _read(node: ast.FunctionDef) -> tuple[Use, ...] | None:
    if any(isinstance(inner, _DOES_MORE) for statement in node.body for inner in ast.walk(statement)):
        return None
    own = bound_in(node.body)[0] | _arguments(node.args)
    uses = [use for statement in node.body for use in effects_of(statement).uses]
    for use in uses:
        own_callee = use.how == "argument" and (not use.callee or use.callee[0] in own)
        if use.how in ("changed", "iterated", "base") or own_callee or (use.name in own and use.how in ("called", "method")):
            return None
    return tuple(use for use in uses if use.how != "read")
