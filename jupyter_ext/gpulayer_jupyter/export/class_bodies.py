"""What a class's own text tells about its objects: whether they share something that changes, and whether looking at one changes it.

Pure. Runs in the kernel.
"""

from __future__ import annotations

import ast

_WORDS_MAKERS = "list dict set bytearray deque defaultdict Counter OrderedDict count iter"
_MAKERS = frozenset(_WORDS_MAKERS.split())
_LOOKED_UP = frozenset({"__getitem__", "__missing__", "__getattr__", "__getattribute__", "__contains__"})
_ASKED = frozenset({"property", "cached_property"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def shares_state(node: ast.ClassDef) -> bool:
    """Whether its objects hold something in common that a method may change."""
    return any(
        isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None and _may_change(statement.value)
        for statement in node.body
    ) or any(_stores_into_class(inner) for inner in ast.walk(node))


def changes_when_read(node: ast.ClassDef) -> bool:
    """Whether a subscript or an attribute of its objects may be the work of a method that changes something."""
    for method in node.body:
        if not isinstance(method, _FUNCTIONS):
            continue
        wrappers = {_last(decorator) for decorator in method.decorator_list}
        if "cached_property" in wrappers:
            return True
        if (method.name in _LOOKED_UP or wrappers & _ASKED) and any(_does_more(inner) for inner in ast.walk(method)):
            return True
    return False


def _may_change(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return _last(node.func) in _MAKERS
    return isinstance(node, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.Name))


def _stores_into_class(node: ast.AST) -> bool:
    """`cls.count += 1`, `type(self).count = 2`."""
    if not isinstance(node, (ast.Attribute, ast.Subscript)) or isinstance(node.ctx, ast.Load):
        return False
    root: ast.expr = node
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        if isinstance(root, ast.Attribute) and root.attr == "__class__":
            return True
        root = root.value
    return (isinstance(root, ast.Name) and root.id == "cls") or (isinstance(root, ast.Call) and _last(root.func) == "type")


def _does_more(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return True
    return isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load)


def _last(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
