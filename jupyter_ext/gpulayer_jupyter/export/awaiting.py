"""Statements that await outside a function: how a program runs what a notebook runs in its event loop.

A kept statement becomes the body of a function that declares its names global; the job's own cell is compiled as IPython
compiles it. One loop serves the whole program, as one serves a kernel. Pure. Runs in the kernel.
"""

from __future__ import annotations

import ast
import io
import tokenize

from gpulayer_jupyter.export.effects import Effects
from gpulayer_jupyter.export.pieces import Piece
from gpulayer_jupyter.export.scopes import bound_in

_ASK_FOR_THE_LOOP = frozenset({"create_task", "ensure_future", "get_running_loop", "current_task", "all_tasks", "TaskGroup"})
_NOT_AT_ONCE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

LOOP = """
# What awaits outside a function runs in this event loop, as in a notebook.
__gpulayer_loop__ = __import__("asyncio").Runner()
"""
EXECUTE = """
def __gpulayer_exec__(code):
    waits = eval(code, globals())
    if waits is not None:
        __gpulayer_loop__.run(waits)
"""


def needs_loop(node: ast.stmt, effects: Effects) -> bool:
    """Whether the statement can't run as it stands at the top of a script."""
    if effects.awaits_at is not None:
        return True
    pending: list[ast.AST] = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, _NOT_AT_ONCE):
            continue
        if isinstance(part, ast.Call):
            name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
            if name in _ASK_FOR_THE_LOOP:
                return True
        pending.extend(ast.iter_child_nodes(part))
    return False


def in_a_function(piece: Piece) -> tuple[str, str, str]:
    """What stands above, in place of, and below the statement's text."""
    bound, declared = bound_in([piece.node])
    names = sorted(bound | declared)
    above = "async def __gpulayer_awaits__():\n" + (f"    global {', '.join(names)}\n" if names else "")
    source = piece.source
    if _indenting_changes(source) or any(isinstance(part, ast.AnnAssign) for part in ast.walk(piece.node)):
        source = ast.unparse(_Unannotated().visit(ast.parse(ast.unparse(piece.node)))) + "\n"
    body = "".join(f"    {line}" if line.strip() else line for line in source.splitlines(keepends=True))
    return above, body, "__gpulayer_loop__.run(__gpulayer_awaits__())\n"


def _indenting_changes(source: str) -> bool:
    """Whether a text of several lines is among it."""
    strings = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    try:
        return any(
            token.type in strings and token.start[0] != token.end[0] for token in tokenize.generate_tokens(io.StringIO(source).readline)
        )
    except (tokenize.TokenError, SyntaxError):
        return True


class _Unannotated(ast.NodeTransformer):
    """`x: int = await f()` can't stand where `x` is declared global."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value, lineno=node.lineno), node)

    def _stay(self, node: ast.AST) -> ast.AST:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _stay  # noqa: N815
