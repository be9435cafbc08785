"""The backward slice: which statements of the history a cell needs, so that running them binds the same values.

A forward pass keeps, for each name, the statements that make up its value at that moment (what bound it and what may have
changed it since, under this or another name); a statement depends on those of every name it reads, the bodies of what it
calls included. In doubt a statement is kept. Pure: no shell, no files. Runs in the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from gpulayer_jupyter.export.forward_pass import ForwardPass, Step, no_star_names
from gpulayer_jupyter.export.kept_pass import KeptPass
from gpulayer_jupyter.export.missing_names import Missing, missing_names
from gpulayer_jupyter.export.pieces import Piece


@dataclass(frozen=True, slots=True)
class Slice:
    """Indices into history + cell.

    Args:
        kept: statements of the history that travel, in order.
        steps: one for each statement of history and cell.
        missing: names that nothing in the history binds.
    """

    kept: tuple[int, ...]
    steps: tuple[Step, ...]
    missing: tuple[Missing, ...]
    defs: dict[str, list[int]]


def slice_pieces(
    history: Sequence[Piece],
    cell: Sequence[Piece],
    *,
    star_names: Callable[[str], Iterable[str]] = no_star_names,
    given: Collection[str] = (),
    kept: KeptPass | None = None,
) -> Slice:
    """Find what of `history` the statements of `cell` need.

    Args:
        history: the statements that ran, in order.
        cell: the statements to run after them.
        star_names: the names that `from module import *` binds.
        given: paths of files that travel as they are.
        kept: the pass over what the kernel has run, where the history begins with that.
    """
    flow = (KeptPass() if kept is None else kept).over(history, star_names, given)
    pieces = (*history, *cell)
    for piece in cell:
        flow.add(piece)
    wanted = list(range(len(history), len(history) + len(cell)))
    wanted += [index for index, step in enumerate(flow.steps[: len(history)]) if step.ambient]
    needed = _closed(flow, wanted)
    return Slice(
        kept=tuple(sorted(index for index in needed if index < len(history))),
        steps=tuple(flow.steps),
        missing=tuple(
            missing_names(
                [piece.node for piece in pieces],
                [step.effects for step in flow.steps],
                [step.unbound for step in flow.steps],
                [step.deleted for step in flow.steps],
                sorted(needed),
                flow.values,
            )
        ),
        defs={name: value.defs for name, value in flow.values.items()},
    )


def _closed(flow: ForwardPass, wanted: list[int]) -> set[int]:
    """These statements with all that they depend on, and the changes that they see in the libraries they use."""
    needed: set[int] = set()
    roots: set[str] = set()
    while wanted:
        index = wanted.pop()
        if index not in needed:
            needed.add(index)
            wanted.extend(flow.steps[index].depends)
            roots |= flow.steps[index].roots
        if not wanted:
            wanted.extend(set(flow.patches.seen_by(roots)) - needed)
    return needed
