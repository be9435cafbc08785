"""Which modules a source may import, as dotted names; nothing is imported. Runs in the kernel."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from gpulayer_jupyter.export.known_names import base_of

MOST_KEPT = 10_000  # sources; a project of that many edits is read again from time to time
_CALLS = (b"import_module", b"__import__")
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")

_KEPT_TREES_BYTES = 1024 * 1024
"""Of sources whose trees are kept; a tree takes some thirty times as much."""

_trees: dict[bytes, tuple[int, ast.Module]] = {}
_of_sources: dict[tuple[bytes, str], tuple[str, ...]] = {}
_of_statements: WeakKeyDictionary[ast.AST, tuple[str, ...]] = WeakKeyDictionary()


def tree_of(source: bytes) -> ast.Module:
    """The parsed module, which nobody may change; those parsed last are kept.

    Raises:
        SyntaxError: or ValueError, RecursionError or MemoryError, for what Python can't read.
    """
    key = hashlib.sha256(source).digest()
    known = _trees.pop(key, None)
    tree = known[1] if known is not None else ast.parse(source)
    _trees[key] = len(source), tree  # at the end: it is the one that was asked for last
    if known is None:
        surplus = sum(size for size, _ in _trees.values()) - _KEPT_TREES_BYTES
        for oldest in [*_trees][:-1]:
            if surplus <= 0:
                break
            surplus -= _trees.pop(oldest)[0]
    return tree


def imported_by_source(source: bytes, *, package: str) -> tuple[str, ...]:
    """What a module imports, function bodies and `import_module("…")` included.

    A source is read once: of a project's modules few change from one submit to the next.

    Args:
        source: the file's content.
        package: the one that relative imports start from.

    Raises:
        SyntaxError: or ValueError, RecursionError or MemoryError, for what Python can't read.
    """
    key = (hashlib.sha256(source).digest(), package)
    found = _of_sources.get(key)
    if found is None:
        tree = tree_of(source)
        # Import statements stand in blocks of statements; only the calls may stand in any expression.
        nodes = ast.walk(tree) if any(call in source for call in _CALLS) else _statements(tree)
        found = tuple(dict.fromkeys(name for node in nodes for name in _names(node, package)))
        if len(_of_sources) >= MOST_KEPT:
            _of_sources.clear()
        _of_sources[key] = found
    return found


def imported_by_statement(statement: ast.AST) -> tuple[str, ...]:
    """What a statement of a cell imports; a history's statements are asked at each submit."""
    found = _of_statements.get(statement)
    if found is None:
        found = _of_statements[statement] = tuple(dict.fromkeys(name for node in ast.walk(statement) for name in _names(node, "")))
    return found


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        for block in _BLOCKS:
            inner = getattr(node, block, None)
            if isinstance(inner, list):  # `body` of a lambda or of an `if` expression is none
                pending.extend(inner)


def _names(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = base_of(node, package)
        if base:
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
    elif isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("import_module", "__import__") and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and not first.value.startswith("."):
                yield first.value
