"""What a person decides about the statements of earlier cells: `--exclude`, `--only` and `--rerun`.

Which statements have side effects is found in `side_effects.py`. Pure but for what a kernel remembers. Runs in the kernel.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from gpulayer.errors import InvalidSpec
from gpulayer_jupyter.export.effects import Effects, effects_of
from gpulayer_jupyter.export.pieces import Piece

ALL = "all"
_PLACE = re.compile(r"(?:cell\s*)?\[?(\d+)\]?(?::(\d+))?")


@dataclass(frozen=True, slots=True)
class Selector:
    """A name, a cell, or a line of a cell, as a person wrote it."""

    text: str
    name: str = ""
    cell: int | None = None
    line: int | None = None

    def is_place_of(self, piece: Piece) -> bool:
        """Whether it names the cell or line where the statement stands."""
        if self.cell != piece.cell:
            return False
        return self.line is None or piece.line <= self.line < piece.line + max(1, piece.source.count("\n"))

    def is_about(self, piece: Piece, names: Collection[str]) -> bool:
        """Whether it names the statement's place, or one of these names, which the statement binds or changes."""
        return self.name in names or self.is_place_of(piece)

    def accepts(self, piece: Piece, names: Collection[str]) -> bool:
        """Whether it accepts the side effects of this statement, which binds or changes these names."""
        return self.name == ALL or self.is_about(piece, names)


def read_selectors(text: str) -> tuple[Selector, ...]:
    """Read `model,3:2,4`: names, lines and whole cells.

    Raises:
        ValueError: saying which word is none of these, or that there is none.
    """
    words = [word.strip() for word in text.split(",")]
    selectors = tuple(_read_selector(word) for word in words if word)
    if not selectors:
        raise ValueError(f"{text!r} names no statement")
    return selectors


def _read_selector(word: str) -> Selector:
    place = _PLACE.fullmatch(word)
    if place is not None:
        cell, line = place.groups()
        return Selector(word, cell=int(cell), line=int(line) if line else None)
    if not word.isidentifier():
        raise ValueError(f"{word!r} is neither a name nor CELL:LINE")
    return Selector(word, name=word)


@dataclass(frozen=True, slots=True)
class Choices:
    """Of one submit.

    Args:
        exclude: what is left out of the history.
        only: of the history's statements only these run; imports, functions and classes travel as they are needed.
        rerun: whose side effects are accepted; `ALL` as a name accepts every one.
        accepted: texts of statements that this kernel has accepted before.
    """

    exclude: tuple[Selector, ...] = ()
    only: tuple[Selector, ...] = ()
    rerun: tuple[Selector, ...] = ()
    accepted: Collection[str] = frozenset()

    def accepts(self, piece: Piece, names: Collection[str]) -> bool:
        """Whether the side effects of this statement, which binds or changes these names, may happen on every rank."""
        if text_of(piece) in self.accepted:
            return True
        return any(chosen.accepts(piece, names) for chosen in self.rerun)


NO_CHOICES = Choices()


@dataclass(frozen=True, slots=True)
class Chosen:
    """A history without what was left out; `left_out`: names that the rest of it bound → where and by which option."""

    pieces: list[Piece]
    left_out: dict[str, str] = field(default_factory=dict)


def choose(history: Sequence[Piece], choices: Choices, names_altered: Callable[[], Sequence[Collection[str]]]) -> Chosen:
    """Leave out of the history what a person doesn't want to run.

    Args:
        history: the statements that ran.
        choices: what to leave out.
        names_altered: for each statement the names that it binds or may change; asked only where that matters.

    Raises:
        InvalidSpec: a choice that no statement of the history answers to.
    """
    if not (choices.exclude or choices.only):
        return Chosen(list(history))
    kept: list[Piece] = []
    left_out: dict[str, str] = {}
    matched: set[Selector] = set()
    altered = names_altered() if any(chosen.name for chosen in choices.only) else [()] * len(history)
    for piece, names in zip(history, altered, strict=True):
        wanted = [chosen for chosen in choices.only if chosen.is_about(piece, names)]
        unwanted = [chosen for chosen in choices.exclude if chosen.is_place_of(piece) or _is_made_for(piece, chosen.name)]
        matched.update(wanted, unwanted)
        bound = _effects(piece)
        if unwanted or (choices.only and not wanted and not _defines(piece.node)):
            option = "--exclude" if unwanted else "--only"
            left_out.update(dict.fromkeys(bound.binds | bound.may_bind, f"{piece.place()}, left out by {option}"))
        else:
            kept.append(piece)
            for name in bound.binds:
                left_out.pop(name, None)
    for option, selectors in (("--exclude", choices.exclude), ("--only", choices.only)):
        _check_matched(option, [chosen for chosen in selectors if chosen not in matched], history)
    return Chosen(kept, left_out)


def check_rerun(selectors: Iterable[Selector], history: Sequence[Piece], names_altered: Sequence[Collection[str]]) -> None:
    """Refuse what no statement of the history answers to.

    Raises:
        InvalidSpec: naming the choice.
    """
    known = set().union(*names_altered) if names_altered else set()
    unknown = [
        chosen
        for chosen in selectors
        if chosen.name != ALL and chosen.name not in known and not any(chosen.is_place_of(piece) for piece in history)
    ]
    _check_matched("--rerun", unknown, history)


def _check_matched(option: str, unknown: Sequence[Selector], history: Sequence[Piece]) -> None:
    if not unknown:
        return
    cells = sorted({piece.cell for piece in history})
    bound = set().union(*(_effects(piece).binds for piece in history))
    meant = [near for chosen in unknown if chosen.name for near in difflib.get_close_matches(chosen.name, bound, n=1)]
    raise InvalidSpec(
        f"{option} names what no statement of an earlier cell has.",
        asked=f"{option} {','.join(chosen.text for chosen in unknown)}",
        found=f"cells {', '.join(map(str, cells[-20:]))}" if cells else "no earlier cell",
        fix=f"Did you mean {meant[0]!r}?"
        if meant
        else "Give a name that an earlier cell binds, or CELL:LINE with the number in brackets beside the cell.",
    )


def _is_made_for(piece: Piece, name: str) -> bool:
    """Whether the statement binds this name, or binds nothing and changes this name's value."""
    if not name:
        return False
    effects = _effects(piece)
    bound = effects.binds | effects.may_bind | effects.deletes
    if bound:
        return name in bound
    if piece.restores:
        return re.split(r"[.[]", piece.restores, maxsplit=1)[0] == name
    return any(use.name == name and use.how in ("changed", "method") and not use.later for use in effects.uses)


def _effects(piece: Piece) -> Effects:
    return effects_of(piece.node) if piece.run is None else piece.run.effects()


def _defines(node: ast.stmt) -> bool:
    if isinstance(node, ast.Try):
        return all(_defines(inner) or isinstance(inner, (ast.Assign, ast.Pass)) for inner in (*node.body, *node.orelse))
    return isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def text_of(piece: Piece) -> str:
    """What an acceptance is remembered by: the statement as it is written, whatever number its cell gets."""
    return piece.source.strip()


# ---- what a kernel remembers


@dataclass(slots=True)
class Remembered:
    """Of one kernel.

    Args:
        accepted: texts of statements whose side effects may happen on every rank.
        refused: the statements, with the names that they alter, of the last refusal.
        has_forgotten: a person took back what was accepted, so that what the notebook holds of it counts no more.
    """

    accepted: set[str] = field(default_factory=set)
    refused: list[tuple[Piece, frozenset[str]]] = field(default_factory=list)
    has_forgotten: bool = False


_remembered: WeakKeyDictionary[Any, Remembered] = WeakKeyDictionary()


def remembered_by(shell: Any) -> Remembered:
    """What this shell has accepted and refused so far."""
    return _remembered.setdefault(shell, Remembered())
