"""A cell's text as pieces: its top-level statements with their source as the user wrote it and their place in the cell.

The text is read with IPython's own transformer; what magics become is decided in `magic_lines.py`. Runs in the kernel.
"""

from __future__ import annotations

import ast
import difflib
import io
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpulayer.bundle.executing import Position
from gpulayer.errors import NotExportable
from gpulayer_jupyter.export import magic_lines
from gpulayer_jupyter.export.run_files import RunFile
from gpulayer_jupyter.export.scopes import bound_in

Transform = Callable[[str], str]
Span = tuple[tuple[int, int], tuple[int, int]]
"""First line and column, and those behind the last character."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One top-level statement.

    Args:
        cell: the cell's execution count.
        line: line of the notebook's cell on which `source` begins.
        source: whole lines where they are its own, comments above included.
        first: the line of the parsed text on which `source` begins.
        refusal: why this statement can't travel; None where it can.
        always: it travels whatever the slice says.
        files: what it reads beside the script: path in the bundle → file, or what is in it.
        spans: where it stands in the transformed text; below a magic that runs text of its own, there as well.
        restores: the name whose value this statement gives the state that it has in the kernel; see `fit_pieces.py`.
        spared: names that count as unchanged by this statement.
        replays: set where a `Trainer.fit` ran in it: the files that stand for the fit, or none where it trains again.
        run: the file that a `%run` stands for.
        unfinished: it raised: nobody knows what of it has happened.
    """

    cell: int
    line: int
    source: str
    node: ast.stmt
    first: int
    refusal: str | None = None
    always: bool = False
    files: Mapping[str, Path | bytes] = field(default_factory=dict)
    spans: tuple[Span, ...] = ()
    restores: str = ""
    spared: frozenset[str] = frozenset()
    replays: tuple[str, ...] | None = None
    run: RunFile | None = None
    unfinished: bool = False

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """What is executed where the statement runs."""
        return (self.node,) if self.run is None else (self.node, self.run.tree)

    def holds(self, position: Position) -> bool:
        """Whether what is executed there belongs to this statement."""
        pairs = list(zip(self.spans, position, strict=False))
        return bool(pairs) and all(start <= at < end for (start, end), at in pairs)

    def begins_by(self, position: Position) -> bool:
        """Whether this statement had begun when what stands there was executed."""
        for (start, end), at in zip(self.spans, position, strict=False):
            if not start <= at < end:
                return start <= at
        return True

    def cell_line(self, parsed_line: int) -> int:
        """The line of the notebook's cell for a line of the parsed text."""
        return self.line + parsed_line - self.first

    def place(self, parsed_line: int | None = None) -> str:
        return f"cell {self.cell}, line {self.cell_line(self.node.lineno if parsed_line is None else parsed_line)}"


@dataclass(slots=True)
class ReadCell:
    """What a cell's text holds.

    Args:
        pieces: the statements that ran, in order.
        unfinished: the one that raised, or those below the magic that did.
        remote: names that a `%%gpulayer` cell bound on its ranks → where.
    """

    pieces: list[Piece] = field(default_factory=list)
    unfinished: list[Piece] = field(default_factory=list)
    remote: dict[str, str] = field(default_factory=dict)


def read_cell(
    raw: str,
    *,
    cell: int,
    transform: Transform,
    first_line: int = 1,
    failed_line: int | None = None,
    spans: tuple[Span, ...] = (),
    files: Mapping[str, bytes] = {},
) -> ReadCell:
    """Split a cell into its statements.

    Args:
        raw: the text as it was typed.
        cell: the cell's execution count.
        transform: IPython's, from typed text to Python.
        first_line: which line of the notebook's cell `raw` begins on.
        failed_line: line of the transformed text that raised; what stands from that statement on did not run.
        spans: where the magic stands whose text this is.
        files: what its `%run` lines run; see `files_that_run`.

    Raises:
        SyntaxError: as Python sees it, with the cell's own line.
        NotExportable: a text that no Python reads.
    """
    read = ReadCell()
    text = raw
    try:
        text = transform(raw)
        tree = ast.parse(text)
        with warnings.catch_warnings():  # the kernel says them
            warnings.simplefilter("ignore")
            for alone in tree.body:  # as IPython does: `from __future__` may stand further down; a lone `return` is an error
                compile(ast.Module([alone], []), "", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        lines = _line_map(raw, text)
    except SyntaxError as error:
        line = _line_map(raw, text)(error.lineno) if error.lineno is not None else 1
        raise _at(error, cell, first_line - 1 + line) from None
    except (ValueError, RecursionError, MemoryError) as error:
        # NUL bytes, half a surrogate pair, and what is nested deeper than Python's own parser goes.
        raise NotExportable(f"Cell {cell}, line {first_line}: Python can't read this cell: {error or 'it is nested too deep'}.") from None
    for node, first, source in _segments(text, tree):
        line = first_line - 1 + lines(first)
        here = (*spans, _span(node))
        magic = magic_lines.interpret(node, files)
        if failed_line is not None and (node.end_lineno or node.lineno) >= failed_line:
            failed = Piece(cell, line, source, node, first, spans=here, unfinished=True)
            read.unfinished = [failed] if magic is None else _below(failed, magic, transform, files)
            break
        if magic is None:
            read.pieces.append(Piece(cell, line, source, node, first, spans=here))
        elif magic.body is not None:
            first_inside = first_line - 1 + lines(node.lineno) + magic.body_offset
            inner = read_cell(
                magic.body,
                cell=cell,
                transform=transform,
                first_line=first_inside,
                failed_line=failed_line,
                spans=here,
                files=files,
            )
            if magic.is_remote:
                read.remote.update(_bindings(inner))
            else:
                read.pieces.extend(inner.pieces)
                read.unfinished.extend(inner.unfinished)
                read.remote.update(inner.remote)
        elif magic.source is not None:
            try:
                replaced = ast.parse(magic.source).body
            except SyntaxError as error:
                raise _at(error, cell, first_line - 1 + lines(node.lineno)) from None
            read.pieces.extend(
                Piece(
                    cell,
                    first_line - 1 + lines(node.lineno),
                    f"{ast.unparse(part)}\n",
                    part,
                    1,
                    magic.refusal,
                    magic.always,
                    spans=(*here, _span(part)),
                    files={magic.run.path: magic.run.content} if magic.run is not None else {},
                    run=magic.run,
                )
                for part in replaced
            )
        elif magic.refusal is not None:
            read.pieces.append(Piece(cell, line, source, node, first, magic.refusal, spans=here))
    return read


def _below(failed: Piece, magic: magic_lines.Magic, transform: Transform, files: Mapping[str, bytes]) -> list[Piece]:
    """The statements of a magic's text that raised; what is refused there or can't be read has bound nothing that Python knows of."""
    if magic.body is None or magic.is_remote:
        return []
    try:
        inner = read_cell(magic.body, cell=failed.cell, transform=transform, first_line=failed.line, spans=failed.spans, files=files)
    except (SyntaxError, NotExportable):
        return []
    return [replace(piece, line=failed.line, first=piece.node.lineno, unfinished=True) for piece in inner.pieces]


def _at(error: SyntaxError, cell: int, line: int) -> SyntaxError:
    """The error with its place in the notebook."""
    if error.lineno is not None and error.end_lineno is not None:
        error.end_lineno += line - error.lineno
    error.lineno, error.filename = line, f"cell [{cell}]"
    return error


def _span(node: ast.stmt) -> Span:
    return (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0)


def _bindings(inner: ReadCell) -> dict[str, str]:
    return {name: piece.place() for piece in inner.pieces for name in bound_in([piece.node])[0]}


def _line_map(raw: str, text: str) -> Callable[[int], int]:
    """From lines of the transformed text to lines of the raw one; IPython joins continued magic lines and drops empty ones."""
    before, after = ([line.rstrip("\r\n") for line in _lines(part)] for part in (raw, text))
    if len(before) == len(after):
        return lambda line: line
    table: dict[int, int] = {}
    for _, start, end, new_start, new_end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        for offset in range(new_end - new_start):
            table[new_start + offset + 1] = min(start + offset, max(end - 1, start)) + 1
    return lambda line: table.get(line, line)


def _lines(text: str) -> list[str]:
    """Lines as Python counts them; `str.splitlines` takes a form feed, or a separator of Unicode inside a text, for another end."""
    return io.StringIO(text, newline="").readlines()


def _segments(text: str, tree: ast.Module) -> list[tuple[ast.stmt, int, str]]:
    """Each statement with the first line and the text of what belongs to it."""
    lines = _lines(text)
    found: list[tuple[ast.stmt, int, str]] = []
    starts = [min([node.lineno, *(outer.lineno for outer in getattr(node, "decorator_list", ()))]) for node in tree.body]
    ends = [node.end_lineno or node.lineno for node in tree.body]
    for index, node in enumerate(tree.body):
        first, last = starts[index], ends[index]
        shares = (index > 0 and ends[index - 1] >= first) or (index + 1 < len(starts) and starts[index + 1] <= last)
        if shares:
            # Behind the cell's last expression a semicolon says that its value is not to be shown.
            end = ";" if index + 1 == len(starts) and lines[last - 1].encode()[node.end_col_offset or 0 :].lstrip().startswith(b";") else ""
            found.append((node, node.lineno, (ast.get_source_segment(text, node) or ast.unparse(node)) + end + "\n"))
            continue
        floor = ends[index - 1] if index else 0
        while first - 1 > floor and lines[first - 2].lstrip().startswith("#"):
            first -= 1
        found.append((node, first, "".join([*lines[first - 1 : last - 1], _last_line(lines[last - 1], node.end_col_offset or 0)])))
    return found


def _last_line(line: str, end: int) -> str:
    """A statement's last line, without a backslash behind it that would draw the line below into the statement."""
    content = line.encode()
    behind = content[end:].decode().rstrip()
    if behind.endswith("\\") and "#" not in behind:
        return content[:end].decode() + behind.rstrip("\\").rstrip() + "\n"
    return line if line.endswith("\n") else line + "\n"
