"""The rules of a terminal, case by case: `labextension/tests/views/logs/terminal.spec.ts` runs the same."""

import codecs
import json
import unicodedata
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulayer.terminal_cells import cells_of
from gpulayer.terminal_text import TAIL_ROWS, TerminalText

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "support" / "terminal_cases.json").read_text())
TEXTS = ["a", "bc ", "\n", "\r", "\t", "\b", "训", "🚀", "e\u0301"]
SEQUENCES = ["A", "3A", "B", "2C", "D", "K", "1K", "J", "2J", "H", "L", "2M", "P", "@", "31m", "0m"]
PIECES = st.lists(
    st.sampled_from([*TEXTS, *(f"\x1b[{sequence}" for sequence in SEQUENCES), "\x1b]0;t\x07", "\x1b7", "\x1b8"])
    | st.integers(1, 250).map(lambda count: "line\n" * count),
    max_size=30,
)


def pieces_of(case: dict[str, Any]) -> list[bytes]:
    return [_bytes(part) for part in case["input"]]


def _bytes(part: str | dict[str, Any]) -> bytes:
    if isinstance(part, str):
        return part.encode()
    if "hex" in part:
        return bytes.fromhex(part["hex"])
    return "".join(part["text"].replace("{n}", str(number)) for number in range(part["from"], part["to"], part["step"])).encode()


def lines_of(expected: list[Any]) -> list[str]:
    lines: list[str] = []
    for part in expected:
        if isinstance(part, str):
            lines.append(part)
        elif "repeat" in part:
            lines.append(part["repeat"] * part["times"] + part["then"])
        else:
            lines.extend(part["text"].replace("{n}", str(number)) for number in range(part["from"], part["to"]))
    return lines


def shown(pieces: list[bytes], *, keep_styles: bool = False) -> list[str]:
    terminal = TerminalText(keep_styles=keep_styles)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    lines: list[str] = []
    for piece in pieces:
        lines.extend(terminal.feed(decoder.decode(piece)))
    lines.extend(terminal.feed(decoder.decode(b"", final=True)))
    return lines + terminal.finish()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_a_terminal_shows(case: dict[str, Any]) -> None:
    pieces = pieces_of(case)
    plain = lines_of(case["plain"])
    styled = lines_of(case["styled"]) if "styled" in case else plain
    whole = b"".join(pieces)
    for cut in ([whole], pieces, [whole[at : at + 7] for at in range(0, len(whole), 7)]):
        assert shown(cut) == plain
        assert shown(cut, keep_styles=True) == styled


@given(PIECES, st.lists(st.integers(0, 400), max_size=8))
@settings(max_examples=150, deadline=None)
def test_where_text_is_cut_changes_nothing(pieces: list[str], cuts: list[int]) -> None:
    whole = "".join(pieces)
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    for keep_styles in (False, True):
        terminal = TerminalText(keep_styles=keep_styles)
        lines = [line for start, end in pairwise(places) for line in terminal.feed(whole[start:end])]
        assert len(terminal.open_lines()) <= TAIL_ROWS
        assert lines + terminal.finish() == shown([whole.encode()], keep_styles=keep_styles)


@given(st.text(max_size=200))
def test_no_text_is_refused_and_no_control_is_left(text: str) -> None:
    terminal = TerminalText()
    lines = terminal.feed(text) + terminal.finish()
    assert not [line for line in lines for character in line if unicodedata.category(character) == "Cc"]


def test_open_lines_come_again_until_they_are_final() -> None:
    terminal = TerminalText()
    assert terminal.feed("one\ntwo") == []
    assert terminal.open_lines() == ["one", "two"]
    assert terminal.feed("\x1b[A\rONE\n" + "more\n" * TAIL_ROWS)[:2] == ["ONE", "more"]
    assert len(terminal.open_lines()) == TAIL_ROWS - 1


def test_another_attempt_begins_anew() -> None:
    terminal = TerminalText(keep_styles=True)
    terminal.feed("\x1b[31mred\x1b[4")
    assert terminal.finish() == ["\x1b[31mred\x1b[0m"]
    terminal.feed("5mplain")
    assert terminal.open_lines() == ["5mplain"]


def test_widths_are_those_of_unicode_for_what_people_write() -> None:
    blocks = [
        (0x20, 0x250),
        (0x370, 0x400),
        (0x2500, 0x25A0),
        (0x2800, 0x2900),
        (0x3041, 0x3097),
        (0x4E00, 0x9FA6),
        (0xAC00, 0xD7A4),
        (0x1F600, 0x1F650),
    ]
    for start, end in blocks:
        for code in range(start, end):
            character = chr(code)
            if unicodedata.category(character) not in {"Cc", "Cn"}:
                wide = unicodedata.east_asian_width(character) in "WF"
                assert cells_of(character) == ("", [character, ""] if wide else [character]), hex(code)
