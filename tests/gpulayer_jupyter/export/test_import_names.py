"""Which modules a source names in its imports."""

from __future__ import annotations

import ast

import pytest
from gpulayer_jupyter.export.import_names import imported_by_source, imported_by_statement, tree_of

SOURCES = {
    "import a, b.c as d": {"a", "b.c"},
    "from a import b, c": {"a", "a.b", "a.c"},
    "from a import *": {"a"},
    "from . import b": {"top.pack", "top.pack.b"},
    "from ..a import b": {"top.a", "top.a.b"},
    "from .... import far": set(),
    "from .....far import away": {"far", "far.away"},
    "def f():\n    import a": {"a"},
    "class C:\n    if x:\n        pass\n    else:\n        import a": {"a"},
    "try:\n    import a\nexcept E:\n    import b\nelse:\n    import c\nfinally:\n    import d": {"a", "b", "c", "d"},
    "match x:\n    case 1:\n        import a": {"a"},
    "with x:\n    async def f():\n        async for y in z:\n            import a": {"a"},
    "x = lambda: __import__('a')": {"a"},
    "importlib.import_module('a.b')\nimport c": {"a.b", "c"},
    "import_module('.a', 'b')": set(),
    "'import a'\n# import b\nx = 'import_module'": set(),
}


@pytest.mark.parametrize("source", SOURCES)
def test_names(source: str) -> None:
    assert set(imported_by_source(source.encode(), package="top.pack")) == SOURCES[source]
    assert imported_by_source(source.encode(), package="top.pack") is imported_by_source(source.encode(), package="top.pack")


def test_statements_of_a_cell_have_no_package() -> None:
    statement = ast.parse("from . import a\nimport b").body[1]
    assert imported_by_statement(statement) == ("b",)
    assert imported_by_statement(ast.parse("from .x import a")) == ("x", "x.a")


def test_trees_that_were_asked_for_last_are_kept() -> None:
    first, large = b"x = 1\n", b"# " + b"a" * 600_000 + b"\ny = 1\n"
    tree = tree_of(first)
    tree_of(large)
    assert tree_of(first) is tree
    kept = tree_of(large + b"z = 1\n")  # over the limit: the other large one was asked for before the small one
    assert tree_of(first) is tree
    assert tree_of(large + b"z = 1\n") is kept
