"""Texts in a program that name a file of this machine which would not travel, with the option that sends it.

Only asks the file system whether something is there. Runs in the kernel.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from gpulayer.plain_data.fetched import FETCH
from gpulayer_jupyter.export.pieces import Piece

_WRITES = re.compile(r"(save|to_|write|dump|mkdir|makedirs|savefig|unlink|remove|download|urlretrieve)")
_LONGEST = 1000


def file_hints(pieces: Sequence[Piece], *, folder: Path, bundled: Collection[str]) -> tuple[str, ...]:
    """One sentence for each such text, in the order of the program.

    Args:
        pieces: what travels.
        folder: the kernel's working directory.
        bundled: paths in the bundle, which lie in the job's working directory.
    """
    hints: dict[str, str] = {}
    for piece in pieces:
        for text, place in _texts_of(piece):
            if text not in hints and _stays_behind(text, folder, bundled):
                option = shlex.quote(f"{_input_name(text, hints)}={text}")
                hints[text] = f"'{text}' ({place}) is there on this machine and does not travel; --input {option} sends it."
    return tuple(hints.values())


def _texts_of(piece: Piece) -> Iterator[tuple[str, str]]:
    """Texts of a statement, and of the file that it runs, with their places; the name of that file itself travels."""
    if piece.restores or piece.source.startswith(FETCH):
        return
    if piece.run is None:
        if piece.files:
            return  # a value, whose files travel
        yield from ((text, piece.place(line)) for text, line in _texts(piece.node))
        return
    assert isinstance(piece.node, ast.Expr)
    assert isinstance(piece.node.value, ast.Call)
    for argument in piece.node.value.args[1:]:
        yield from ((text, piece.place()) for text, _ in _texts(argument))
    name = re.sub(r"_[0-9a-f]{8}\.py$", ".py", Path(piece.run.path).name)
    for node in piece.run.tree.body:
        yield from ((text, f"{piece.place()}, %run {name} line {line}") for text, line in _texts(node))


def _stays_behind(text: str, folder: Path, bundled: Collection[str]) -> bool:
    if not text or len(text) > _LONGEST or not text.isprintable() or text.strip(" ./\\~") == "":
        return False
    path = folder / text
    try:
        # A word like "train" may be a folder's name by chance; with a slash in it somebody means the folder.
        there = path.is_file() or ("/" in text and path.is_dir())
    except (OSError, ValueError):
        return False
    plain = Path(text).as_posix()
    return there and plain not in bundled and not any(name.startswith(f"{plain}/") for name in bundled)


def _input_name(text: str, taken: Iterable[str]) -> str:
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", Path(text).stem).strip("-_")[:60] or "data"
    same = sum(Path(other).stem == Path(text).stem for other in taken)
    return f"{stem}-{same + 1}" if same else stem


def _texts(statement: ast.AST) -> Iterator[tuple[str, int]]:
    """Texts with their lines, paths put together of texts included, but not those of what is only written to or imported from."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.Call) and _needs_none(node):
            continue
        whole = _joined(node)
        if whole is not None and isinstance(node, ast.expr):
            yield whole, node.lineno
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):  # a docstring
            pending[:0] = list(ast.iter_child_nodes(node))


def _joined(node: ast.AST) -> str | None:
    """The text of `"a.csv"`, `Path("data") / "a.csv"` and `os.path.join("data", "a.csv")`."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            parts = [_joined(left), _joined(right)]
        case ast.Call(func=ast.Name(id="Path") | ast.Attribute(attr="Path" | "join"), args=args, keywords=[]) if args:
            parts = [_joined(part) for part in args]
        case _:
            return None
    known = [part for part in parts if part is not None]
    return "/".join(part.rstrip("/") for part in known) if len(known) == len(parts) else None


def _needs_none(call: ast.Call) -> bool:
    whole = ast.unparse(call.func)
    if whole.startswith("sys.path."):
        return True  # the modules in that folder travel
    name = whole.rpartition(".")[2]
    if name == "open":
        modes = [part.value for part in (*call.args[1:], *(keyword.value for keyword in call.keywords)) if isinstance(part, ast.Constant)]
        return any(isinstance(mode, str) and re.fullmatch(r"[wax][bt+]*", mode) for mode in modes)
    return _WRITES.match(name) is not None
