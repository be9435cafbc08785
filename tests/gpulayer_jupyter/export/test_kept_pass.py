"""A pass that is kept from export to export says what one from the beginning says, and goes on only from what is the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from gpulayer_jupyter.export.history import runs_of
from gpulayer_jupyter.export.kept_pass import KeptPass
from gpulayer_jupyter.export.pieces import Piece
from gpulayer_jupyter.export.slicer import Slice, slice_pieces
from support.histories.maker import EDIT, make_history
from support.notebook import transform


def _pieces(*cells: str) -> list[Piece]:
    return runs_of(cells).pieces(transform)[0]


def _numbers(module: str) -> Iterable[str]:
    return ("pi", "tau") if module == "math" else ()


def _facts(found: Slice) -> tuple[object, ...]:
    return found.kept, found.steps, found.missing, found.defs


@pytest.mark.parametrize("seed", range(100, 112))
def test_a_kept_pass_says_what_a_fresh_one_says(seed: int) -> None:
    made = make_history(seed)
    pieces = _pieces(*(cell for cell in made.cells if cell != EDIT))
    body = _pieces(made.body)
    kept = KeptPass()
    for end in range(0, len(pieces) + 1, 3):
        kept.take(pieces[:end], _numbers)
        for given in ((), ("data.csv",)):
            whole = slice_pieces(pieces[:end], body, star_names=_numbers, given=given)
            for _ in range(2):  # the first must not have changed what the second goes on from
                assert _facts(slice_pieces(pieces[:end], body, star_names=_numbers, given=given, kept=kept)) == _facts(whole)


def _kept(pieces: Sequence[Piece]) -> KeptPass:
    kept = KeptPass()
    kept.take(pieces, _numbers)
    return kept


def test_a_history_without_one_of_the_statements_is_read_anew() -> None:
    pieces = _pieces("a = 1", "a = 2", "b = a")
    body = _pieces("print(b)")
    kept = _kept(pieces)
    assert slice_pieces(pieces, body, kept=kept).kept == (1, 2)
    assert slice_pieces([pieces[0], pieces[2]], body, kept=kept).kept == (0, 1)
    assert slice_pieces(_pieces("a = 1", "b = 3"), body, kept=kept).kept == (1,)


def test_star_imports_are_asked_again() -> None:
    pieces = _pieces("pi = 3", "from shapes import *")
    body = _pieces("print(pi)")
    kept = KeptPass()
    kept.take(pieces, lambda _: ("area",))
    assert slice_pieces(pieces, body, star_names=lambda _: ("area",), kept=kept).kept == (0,)
    assert slice_pieces(pieces, body, star_names=lambda _: ("area", "pi"), kept=kept).kept == (1,)


def test_files_that_travel_are_those_of_this_export() -> None:
    pieces = _pieces("open('a.csv', 'w').write('1')")
    body = _pieces("print(open('a.csv').read())")
    kept = _kept(pieces)
    assert slice_pieces(pieces, body, kept=kept).kept == (0,)
    assert slice_pieces(pieces, body, given=("a.csv",), kept=kept).kept == ()
    kept.take(pieces, _numbers, given=("a.csv",))
    assert slice_pieces(pieces, body, given=("a.csv",), kept=kept).kept == ()
    assert slice_pieces(pieces, body, kept=kept).kept == (0,)


def test_a_statement_that_can_not_be_read_leaves_nothing_half_done() -> None:
    pieces = _pieces("a = 1", "from broken import *", "b = a")

    def fails(_: str) -> Iterable[str]:
        raise RecursionError

    kept = KeptPass()
    with pytest.raises(RecursionError):
        kept.take(pieces, fails)
    assert slice_pieces(pieces, _pieces("print(b)"), star_names=_numbers, kept=kept).kept == (0, 2)
