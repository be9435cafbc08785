"""No code of the product unpickles, by whatever way (ADR-0002, ADR-0043). Lint bans the plain names; this reads for the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [
    path
    for folder in ("gpulayer", "server/gpulayer_server", "jupyter_ext/gpulayer_jupyter")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
BANNED_MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def found_in(tree: ast.Module) -> Iterator[str]:
    """What may unpickle: modules under any way of importing them, and arguments that ask for it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in BANNED_MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in BANNED_MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            if called in ("import_module", "__import__") and any(str(name).partition(".")[0] in BANNED_MODULES for name in given):
                yield f"{called}({given[0]!r})"
            for keyword in node.keywords:
                if keyword.arg == "allow_pickle" and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False):
                    yield "allow_pickle"
            owner = ast.unparse(node.func).rpartition(".")[0]
            if called in ("load", "read_pickle", "to_pickle") and owner in ("torch", "np", "numpy", "pd", "pandas"):
                yield f"{owner}.{called}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_file_unpickles(path: Path) -> None:
    assert list(found_in(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "__import__('pickle')",
        "importlib.import_module('cloudpickle')",
        "np.lib.format.read_array(f, allow_pickle=True)",
        "read(f, allow_pickle=chosen)",
        "torch.load(f)",
        "pd.read_pickle(f)",
    ],
)
def test_the_ways_around_are_known(code: str) -> None:
    assert list(found_in(ast.parse(code)))
