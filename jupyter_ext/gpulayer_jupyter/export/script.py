"""From a slice to the files of a program: `main.py`, `cell.py` and the table of which line came from which cell.

`main.py` holds at module level the kept statements and the imports, functions and classes of the job's own cell; the rest of
that cell is `cell.py`, run in the same namespace under the main guard, so that processes started by spawn may import
`main.py` again. Pure. Runs in the kernel.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

from gpulayer.bundle.executing import REPLAYS
from gpulayer_jupyter.export.awaiting import EXECUTE, LOOP, in_a_function, needs_loop
from gpulayer_jupyter.export.forward_pass import Step
from gpulayer_jupyter.export.pieces import Piece
from gpulayer_jupyter.export.run_files import HELPER as RUN_FILE
from gpulayer_jupyter.export.slicer import Slice

_GUARD = """
if __name__ == "__main__":
    __gpulayer_cell__ = __import__("pathlib").Path(__file__).with_name("{cell}")
    {execute}(compile(__gpulayer_cell__.read_text(encoding="utf-8"), str(__gpulayer_cell__), "exec"{flags}))
"""
_SHOWING_GUARD = """
if __name__ == "__main__":
    __gpulayer_cell__ = __import__("pathlib").Path(__file__).with_name("{cell}")
    __gpulayer_lines__ = __gpulayer_cell__.read_text(encoding="utf-8").split("\\n")
    {execute}(compile("\\n".join(__gpulayer_lines__[:{lines}]), str(__gpulayer_cell__), "exec"{flags}))
    # The value of the last expression is shown, as below a notebook's cell.
    {execute}(compile("\\n" * {lines} + "\\n".join(__gpulayer_lines__[{lines}:]), str(__gpulayer_cell__), "single"{flags}))
"""
_DISPLAY = '''
try:
    from gpulayer.runtime.rank_display import display
except ImportError:

    def display(*values, **options):
        """What the notebook's display() is where GPUlayer is not installed: text."""
        for value in values:
            print(repr(value))
'''


@dataclass(frozen=True, slots=True)
class LinePiece:
    """`count` lines of a file from `first` on are lines from `line` on of a cell (its number among the program's cells)."""

    file: str
    first: int
    count: int
    cell: int
    line: int


@dataclass(frozen=True)
class Program:
    """The program's own files.

    Args:
        files: name → text.
        lines: where each piece of them comes from.
        cells: execution counts of the program's cells, in the order of their numbers; they are not part of any file.
        pieces: what travels, in order.
    """

    files: dict[str, str]
    lines: tuple[LinePiece, ...]
    cells: tuple[int, ...]
    pieces: tuple[Piece, ...]


class _File:
    def __init__(self, name: str) -> None:
        self.name = name
        self.text = ""
        self.lines: list[LinePiece] = []

    def write(self, text: str) -> None:
        self.text += text

    def add(self, piece: Piece, cell: int, source: str | None = None) -> None:
        text = piece.source if source is None else source
        self.lines.append(LinePiece(self.name, self.text.count("\n") + 1, text.count("\n"), cell, piece.line))
        self.text += text


def write_program(
    history: Sequence[Piece], cell: Sequence[Piece], found: Slice, *, futures: Sequence[str], main: str = "main.py", body: str = "cell.py"
) -> Program:
    """Write the files.

    Args:
        history: statements that ran before, of which `found.kept` travel.
        cell: the job's own cell.
        found: their slice.
        futures: features of `from __future__` that the kernel compiles its cells with.
        main: name of the script.
        body: name of the file for the rest of the cell.
    """
    hoisted = hoisted_pieces(cell, found, offset=len(history))
    kept = [history[index] for index in found.kept]
    cells = list(dict.fromkeys(piece.cell for piece in (*kept, *cell)))
    numbers = {count: number for number, count in enumerate(cells, start=1)}
    top, rest = _File(main), _File(body)
    top.write(f"# Written by GPUlayer from the cells of a notebook; `torchrun {main}` runs it by hand.\n")
    for file in (top, rest):
        if futures:
            file.write(f"from __future__ import {', '.join(sorted(futures))}\n")
    if _reads_display(history, cell, found):
        top.write(_DISPLAY)
    asks = {index for index in (*found.kept, *range(len(history), len(history) + len(cell))) if _waits(found, index, history, cell)}
    cell_asks = any(index >= len(history) for index in asks)
    if asks:
        top.write(LOOP + (EXECUTE if cell_asks else ""))
    if any(piece.run is not None for piece in (*kept, *cell)):
        top.write(RUN_FILE)
    last_cell = None
    last_line = 0
    at_top = [*((history[index], index) for index in found.kept), *((cell[index], len(history) + index) for index in hoisted)]
    for piece, index in at_top:
        if _is_future(piece.node):
            continue
        if piece.cell != last_cell:
            top.write(f"\n# cell {numbers[piece.cell]}\n")
            last_cell = piece.cell
        elif piece.line > last_line:
            top.write("\n")
        if piece.replays is not None:
            top.write(f"{REPLAYS} = {piece.replays!r}  # the kernel fitted a model in this statement\n")
        if index in asks:
            above, source, below = in_a_function(piece)
            top.write(above)
            top.add(piece, numbers[piece.cell], source)
            top.write(below)
        else:
            top.add(piece, numbers[piece.cell])
        if piece.replays is not None:
            top.write(f"{REPLAYS} = None\n")
        last_line = piece.line + piece.source.count("\n")
    chosen = set(hoisted)
    lines = 0
    for index, piece in enumerate(cell):
        if index not in chosen and not _is_future(piece.node):
            lines = rest.text.count("\n")
            rest.add(piece, numbers[piece.cell])
    shows = bool(cell) and len(cell) - 1 not in chosen and _is_shown(cell[-1])
    way = (
        {"execute": "__gpulayer_exec__", "flags": f", {ast.PyCF_ALLOW_TOP_LEVEL_AWAIT}"} if cell_asks else {"execute": "exec", "flags": ""}
    )
    top.write(_SHOWING_GUARD.format(cell=body, lines=lines, **way) if shows else _GUARD.format(cell=body, **way))
    return Program({main: top.text, body: rest.text}, (*top.lines, *rest.lines), tuple(cells), (*kept, *cell))


def _waits(found: Slice, index: int, history: Sequence[Piece], cell: Sequence[Piece]) -> bool:
    piece = history[index] if index < len(history) else cell[index - len(history)]
    return needs_loop(piece.node, found.steps[index].effects)


def futures_of(pieces: Sequence[Piece]) -> list[str]:
    """Features that `from __future__` statements among these switched on; IPython keeps them on for later cells."""
    return sorted({alias.name for piece in pieces if _is_future(piece.node) for alias in piece.node.names})  # type: ignore[attr-defined]


def _is_shown(piece: Piece) -> bool:
    """Whether a cell that ends so shows a value: an expression without a semicolon behind it."""
    if not isinstance(piece.node, ast.Expr):
        return False
    kinds = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)
    words = [token for token in tokenize.generate_tokens(io.StringIO(piece.source).readline) if token.type not in kinds]
    return words[-1].string != ";"


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _reads_display(history: Sequence[Piece], cell: Sequence[Piece], found: Slice) -> bool:
    indices = (*found.kept, *range(len(history), len(history) + len(cell)))
    return "display" not in found.defs and any(use.name == "display" for index in indices for use in found.steps[index].effects.uses)


# ---- what of the cell stands at module level


def hoisted_pieces(cell: Sequence[Piece], found: Slice, *, offset: int) -> list[int]:
    """Indices of the cell's statements that stand at module level.

    Imports, functions and classes with what they read as they are defined, and plain values that their bodies read. A
    statement moves before those that stay in the cell only where neither can notice.
    """
    steps = found.steps[offset:]
    wanted = _wanted(cell, steps, offset)
    hoisted: list[int] = []
    staying: set[str] = set()
    for index, step in enumerate(steps):
        ready = all(needed < offset or needed - offset in hoisted or needed - offset == index for needed in step.depends_at_once)
        if index in wanted and ready and not step.alters & staying and not needs_loop(cell[index].node, step.effects):
            hoisted.append(index)
        else:
            staying |= step.touches
    return hoisted


def _wanted(cell: Sequence[Piece], steps: Sequence[Step], offset: int) -> set[int]:
    definitions = [index for index, piece in enumerate(cell) if _defines(piece.node)]
    last_import = max((index for index in definitions if _imports(cell[index].node)), default=-1)
    # `os.environ["X"] = …` above an import is there for the import's sake.
    surroundings = [index for index, step in enumerate(steps) if step.ambient and index < last_import]
    wanted: set[int] = set()
    names: set[str] = set()
    pending = [*definitions, *surroundings]
    while pending:
        index = pending.pop()
        if index in wanted:
            continue
        wanted.add(index)
        pending.extend(needed - offset for needed in steps[index].depends_at_once if needed >= offset)
        for name in steps[index].later_reads - names:
            names.add(name)
            pending.extend(_plain_bindings(name, cell, steps))
    return wanted


def _plain_bindings(name: str, cell: Sequence[Piece], steps: Sequence[Step]) -> list[int]:
    """The statements that give a name its value, up to the first that does more than that."""
    plain: list[int] = []
    for index, step in enumerate(steps):
        if name not in step.alters:
            continue
        more = needs_loop(cell[index].node, step.effects) or isinstance(
            cell[index].node, (ast.For, ast.While, ast.With, ast.AsyncFor, ast.AsyncWith, ast.Try, ast.Expr)
        )
        if more or step.changes - {name} or _works(cell[index].node):
            break
        plain.append(index)
    return plain


def _works(node: ast.stmt) -> bool:
    """`history = Trainer().fit(Net())` is work, not a value to be had again in each loader worker."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            root: ast.expr = call.func
            while isinstance(root, ast.Attribute):
                root = root.value
            if not isinstance(root, ast.Name):
                return True
    return False


def _defines(node: ast.stmt) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or _imports(node)


def _imports(node: ast.stmt) -> bool:
    if isinstance(node, ast.Try):
        return all(_imports(inner) for inner in node.body)
    return isinstance(node, (ast.Import, ast.ImportFrom))
