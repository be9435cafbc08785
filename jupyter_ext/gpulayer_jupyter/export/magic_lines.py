"""What a magic or shell line means for the exported program: nothing, a Python statement, its own body, or a refusal.

Looks at statements as IPython's transformer leaves them (`get_ipython().run_line_magic(…)`). Runs in the kernel.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpulayer_jupyter.export.run_files import RunFile, run_line

_WORDS_SESSION_ONLY = """
aimport autoreload autosave clear cls colors config doctest_mode gui load_ext matplotlib notebook pdb precision reload_ext xmode
who whos who_ls lsmagic quickref
"""
_SESSION_ONLY = frozenset(_WORDS_SESSION_ONLY.split())
"""Magics that act on the display or the session alone: a job's own cell may hold them, and they are left out."""
_TRANSPARENT_CELLS = frozenset({"time", "capture", "prun"})
_SHELL = frozenset({"system", "getoutput"})


@dataclass(frozen=True, slots=True)
class Magic:
    """What becomes of one statement.

    Args:
        source: Python that means the same.
        body: cell text to read in its place, `body_offset` lines further down.
        is_remote: the body ran on ranks only.
        refusal: why it can't travel, where something needs it.
        always: it is needed whatever the slice says.
        run: the file that `source` runs.
    """

    source: str | None = None
    body: str | None = None
    body_offset: int = 0
    is_remote: bool = False
    refusal: str | None = None
    always: bool = False
    run: RunFile | None = None


def interpret(node: ast.stmt, files: Mapping[str, bytes] = {}) -> Magic | None:
    """None for a statement that is plain Python.

    Args:
        node: the statement.
        files: what `%run` found under the names that the cell gives it.
    """
    calls = [found for found in ast.walk(node) if isinstance(found, ast.Name) and found.id == "get_ipython"]
    if not calls:
        return None
    value = node.value if isinstance(node, (ast.Expr, ast.Assign)) else None
    name, arguments = _call(value)
    if name is None:
        nested = next((call for call in map(_call, ast.walk(node)) if call[0] is not None), (None, []))
        return Magic(refusal=_refusal(*nested))
    if name == "run_cell_magic" and isinstance(node, ast.Expr):
        return _cell_magic(*arguments[:3])
    if name == "run_line_magic":
        return _line_magic(node, files, *arguments[:2])
    return Magic(refusal=_refusal(name, arguments))


def is_session_only(node: ast.stmt) -> bool:
    """Whether a line magic only affects display or session, so that a job's own cell may hold it."""
    name, arguments = _call(node.value if isinstance(node, ast.Expr) else None)
    return name == "run_line_magic" and arguments[0] in _SESSION_ONLY


def _call(node: ast.AST | None) -> tuple[str | None, list[str]]:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="get_ipython")), attr=name), args=args):
            texts = [part.value for part in args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            if len(texts) == len(args) and texts:
                return name, texts
    return None, []


def _cell_magic(name: str, line: str = "", body: str = "") -> Magic:
    if name == "gpulayer":
        return Magic(body=body, body_offset=1, is_remote=True)
    if name in _TRANSPARENT_CELLS:
        statement = re.sub(r"^(\s*-{1,2}[\w-]+)+", "", line).strip() if name == "time" else ""
        return Magic(body=f"{statement}\n{body}" if statement else body, body_offset=0 if statement else 1)
    return Magic(refusal=_refusal("run_cell_magic", [name]))


def _line_magic(node: ast.stmt, files: Mapping[str, bytes], name: str, line: str = "") -> Magic:
    if name == "time":
        code = re.sub(r"^(\s*--no-raise-error|\s*-n\b)+", "", line).strip()
        if isinstance(node, ast.Assign):
            return Magic(source=f"{' = '.join(ast.unparse(target) for target in node.targets)} = {code}")
        return Magic(body=code)  # which IPython transforms as it does a cell
    if name in ("env", "set_env") and isinstance(node, ast.Expr):
        return _environment(name, line)
    if name == "cd" and isinstance(node, ast.Expr):
        return _folder(line)
    if name == "run" and isinstance(node, ast.Expr):
        found = run_line(line, files)
        return Magic(refusal=found) if isinstance(found, str) else Magic(source=found[0], run=found[1])
    return Magic(refusal=_refusal("run_line_magic", [name, line]))


def _folder(line: str) -> Magic:
    folder = re.sub(r"^\s*-q\b", "", line).strip().strip("'\"")
    if not folder or folder.startswith("-") or "$" in folder or "{" in folder:
        return Magic(refusal=_refusal("run_line_magic", ["cd"]))
    plain = f"{folder!r}" if not folder.startswith("~") else f"__import__('os').path.expanduser({folder!r})"
    # As in the notebook, a folder that is not there is said and changes nothing.
    return Magic(source=f"try:\n    __import__('os').chdir({plain})\nexcept OSError:\n    print(__import__('sys').exc_info()[1])")


def _environment(name: str, line: str) -> Magic:
    setting = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(?:=|\s)\s*(.*)", line)
    if setting is None:
        return Magic(refusal=_refusal("run_line_magic", [name]))
    key, value = setting.groups()
    if "$" in value or "{" in value:
        return Magic(refusal=f"`%{name} {line.strip()}` takes its value from the kernel, which the ranks do not have")
    return Magic(source=f"__import__('os').environ.update({{{key!r}: {value.strip()!r}}})", always=True)


def _refusal(name: str | None, arguments: list[str]) -> str:
    if name in _SHELL:
        return f"`!{arguments[0].strip()}` is a shell command, not Python"
    if name == "run_line_magic" and arguments[0] in ("pinfo", "pinfo2", "psearch"):
        return f"`{arguments[1].strip() if len(arguments) > 1 else ''}?` asks IPython for help and is not Python"
    if name == "run_line_magic":
        return f"`%{arguments[0]}` is an IPython magic, not Python"
    if name == "run_cell_magic":
        return f"`%%{arguments[0]}` is an IPython cell magic, not Python"
    return "it speaks to IPython (`get_ipython()`), which the ranks do not have"
