"""`%run file.py`: the file as it was when it ran travels, and the program runs it where the notebook did.

As in IPython the file has a namespace of its own (with `-i` it shares the notebook's), and its names are bound afterwards.
Runs in the kernel.
"""

from __future__ import annotations

import ast
import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpulayer_jupyter.export.effects import Effects, effects_of

_LINE = re.compile(r"^[ \t]*%run\b(.*)$", re.MULTILINE)
_CALL = "__gpulayer_run_file__"
_SHARES, _AS_MODULE = "-i", "-n"
_ONLY_SHOW = frozenset({"-e"})

HELPER = f'''
def {_CALL}(name, *arguments, shares=False, run_name="__main__"):
    """What %run does in a notebook: the file's names are bound here when it has run."""
    import contextlib
    import pathlib
    import sys

    path = str(pathlib.Path(__file__).with_name("scripts") / name)
    names = globals() if shares else {{"__name__": run_name, "__file__": path}}
    before, sys.argv = sys.argv, [path, *arguments]
    try:
        with contextlib.suppress(SystemExit):
            exec(compile(pathlib.Path(path).read_bytes(), path, "exec", dont_inherit=True), names)
    finally:
        sys.argv = before
    globals().update({{name: value for name, value in names.items() if not name.startswith("__")}})
'''


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file that a statement runs.

    Args:
        path: in the bundle.
        shares: it runs among the notebook's own names.
    """

    path: str
    content: bytes
    tree: ast.Module
    shares: bool

    def effects(self) -> Effects:
        """What running it does with the notebook's names."""
        inside = effects_of(ast.If(test=ast.Constant(True), body=self.tree.body or [ast.Pass()], orelse=[]))
        certain = set[str]().union(*(effects_of(node).binds for node in self.tree.body))
        if not self.shares:
            found = Effects()
            found.binds = {name for name in certain if not name.startswith("__")}
            found.may_bind = {name for name in inside.may_bind - certain if not name.startswith("__")}
            return found
        inside.binds |= certain
        inside.may_bind -= certain
        inside.uses = [replace(use, line=1) for use in inside.uses if use.later or inside.bound_at.get(use.name, use.line + 1) > use.line]
        inside.bound_at = {}
        return inside


def files_that_run(raw: str) -> dict[str, bytes]:
    """The files that the `%run` lines of a cell name and that are there: name as it is written → content."""
    found: dict[str, bytes] = {}
    for match in _LINE.finditer(raw):
        named = _named(match.group(1))
        if named is not None:
            file = _file(Path(named[0]).expanduser())
            if file is not None:
                found[named[0]] = file.read_bytes()
    return found


def run_line(line: str, files: Mapping[str, bytes]) -> tuple[str, RunFile] | str:
    """The statement that stands for `%run …` with the file it runs, or why there is none."""
    named = _named(line)
    if named is None:
        return f"`%run {line.strip()}` does more than running a Python file"
    name, options, arguments = named
    content = files.get(name)
    if content is None:
        return f"`%run {line.strip()}` names a file that was not there"
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return f"`%run {line.strip()}` runs a file that is not Python"
    stem = re.sub(r"\W", "_", Path(name).stem)
    path = f"{stem}_{hashlib.sha256(content).hexdigest()[:8]}.py"
    words = [repr(path), *map(repr, arguments)]
    if _SHARES in options:
        words.append("shares=True")
    elif _AS_MODULE in options:
        words.append(f"run_name={stem!r}")
    return f"{_CALL}({', '.join(words)})\n", RunFile(f"scripts/{path}", content, tree, _SHARES in options)


def _named(line: str) -> tuple[str, set[str], list[str]] | None:
    try:
        words = shlex.split(line.partition("#")[0] if " #" in line else line)
    except ValueError:
        return None
    options: set[str] = set()
    while words and words[0].startswith("-"):
        options.add(words.pop(0))
    plain = bool(words) and options <= {_SHARES, _AS_MODULE, *_ONLY_SHOW} and not re.search(r"[{$*?]", words[0])
    if not plain or words[0].endswith((".ipynb", ".ipy")):
        return None
    return words[0], options, words[1:]


def _file(path: Path) -> Path | None:
    for candidate in (path, path.with_name(f"{path.name}.py")):
        if candidate.is_file():
            return candidate
    return None
