"""Kept statements whose repetition on every rank somebody would notice: they write, start processes, use the network, or took long.

What running a statement does outside the process is found in `outside_acts.py`. Runs in the kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpulayer_jupyter.export.effects import Effects, effects_of
from gpulayer_jupyter.export.module_bodies import ModuleSource, Sources
from gpulayer_jupyter.export.outside_acts import OutsideActs
from gpulayer_jupyter.export.pieces import Piece

SLOW_SECONDS = 10.0
_QUICK = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class SideEffect:
    """One statement with what would happen again.

    Args:
        piece: the statement.
        line: of the notebook's cell.
        reasons: in words: "writes files (open)", "took 42 s in the kernel".
        names: what it binds or may change.
        leaves: what could be sent in its place: of these, or of what later statements make of them, what the job's cell reads.
        seconds: how long it took in the kernel; None where nobody knows.
        accepted: a person said that it may run on every rank.
    """

    piece: Piece
    line: int
    reasons: tuple[str, ...]
    names: frozenset[str]
    leaves: tuple[str, ...] = ()
    seconds: float | None = None
    accepted: bool = False

    @property
    def place(self) -> str:
        """As it is written in an option."""
        return f"{self.piece.cell}:{self.line}"

    def told(self) -> str:
        """In one line."""
        return f"cell {self.piece.cell}, line {self.line}: {', '.join(self.reasons)}"


def find_side_effects(
    pieces: Sequence[Piece],
    names: Sequence[Collection[str]],
    *,
    read: Collection[str],
    seconds_of: Callable[[Piece], float | None],
    accepts: Callable[[Piece, Collection[str]], bool],
    modules: Mapping[str, ModuleSource],
) -> tuple[SideEffect, ...]:
    """The side effects of the statements of earlier cells that travel.

    Args:
        pieces: these, in order.
        names: what each binds or may change.
        read: the names that the job's own cell reads.
        seconds_of: how long a statement took in the kernel.
        accepts: whether a person has accepted a statement's side effects.
        modules: the local modules by dotted name.
    """
    acts_of = OutsideActs(Sources(modules))
    found: list[SideEffect] = []
    for index, (piece, altered) in enumerate(zip(pieces, names, strict=True)):
        acts = [] if piece.restores else acts_of.run(piece.node)
        if piece.run is not None:
            acts = acts_of.run_file(piece.run.tree, line=piece.node.lineno, title=piece.run.path)
        seconds = seconds_of(piece) if piece.replays is None and not piece.restores else None
        reasons = list(dict.fromkeys(act.told() for act in acts))
        if seconds is not None and seconds > SLOW_SECONDS and takes_time(piece):
            reasons.append(f"took {'up to ' if len(piece.spans) > 1 else ''}{told_seconds(seconds)} in the kernel")
        if reasons:
            line = piece.cell_line(acts[0].line if acts else piece.node.lineno)
            names_here = frozenset(altered)
            accepted = accepts(piece, names_here)
            leaves = _leaves(piece, names_here, zip(pieces[index + 1 :], names[index + 1 :], strict=True), read)
            found.append(SideEffect(piece, line, tuple(reasons), names_here, leaves, seconds, accepted))
    return tuple(found)


def _leaves(piece: Piece, names: Collection[str], later: Iterable[tuple[Piece, Collection[str]]], read: Collection[str]) -> tuple[str, ...]:
    """The values that the statement made, or later ones made of them, where the job reads them: no functions, no file handles."""
    made = _made_by(piece, names)
    wanted = set(read)
    stem = set(made)
    for following, altered in later:
        uses = _effects(following).uses
        if isinstance(following.node, _QUICK):
            # What a function reads, the job reads by calling it.
            wanted |= {use.name for use in uses}
        elif any(use.name in stem for use in uses):
            stem |= _made_by(following, altered)
    return tuple(sorted(made & wanted or stem & wanted))


def _made_by(piece: Piece, names: Collection[str]) -> set[str]:
    """As the syntax tells: not the functions and loggers that it may have changed."""
    effects = _effects(piece)
    made = (effects.binds | effects.may_bind) - effects.deletes
    if not made:
        made = {use.name for use in effects.uses if use.how in ("changed", "method") and not use.later and use.name in names}
    return {name for name in made if not name.startswith("_")}


def _effects(piece: Piece) -> Effects:
    return effects_of(piece.node) if piece.run is None else piece.run.effects()


def takes_time(piece: Piece) -> bool:
    """Whether the statement may be a long computation: it calls something or loops, and is no import or definition.

    What GPUlayer put into the history itself, for weights and fetched values, stands nowhere in a cell.
    """
    if isinstance(piece.node, _QUICK) or piece.restores or not piece.spans:
        return False
    working = (ast.Call, ast.For, ast.While, ast.comprehension)
    return any(isinstance(inner, working) for node in piece.nodes for inner in ast.walk(node))


def told_seconds(seconds: float) -> str:
    """`0.4 s`, `42 s`, `8 min`."""
    if seconds < 1:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
