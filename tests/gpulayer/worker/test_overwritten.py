"""What a carriage return may take away: only what nobody can see any more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulayer.worker.overwritten import without_overwritten


def _picture(data: bytes, before: str = "") -> list[str]:
    """What a terminal shows, line by line, after `before` has been printed."""
    lines, line, column = [], list(before), len(before)
    for character in data.decode():
        if character == "\n":
            lines.append("".join(line))
            line, column = [], 0
        elif character == "\r":
            column = 0
        else:
            line[column : column + 1] = [character]
            column += 1
    return [*lines, "".join(line)]


@given(st.text(alphabet="ab漢\r\n", max_size=60), st.sampled_from(["", "x", "earlier"]))
def test_the_picture_stays_the_same(text: str, before: str) -> None:
    data = text.encode()
    shorter = without_overwritten(data)
    assert _picture(shorter, before) == _picture(data, before)
    assert len(shorter) <= len(data)
    assert shorter.count(b"\n") == data.count(b"\n")


@pytest.mark.parametrize(
    ("data", "left"),
    [
        (b"\r10%\r20%\r30%", b"\r30%"),
        (b"a\r\nb\r\nc\r\n", b"a\r\nb\r\nc\r\n"),
        (b"\rlong text\rx\ry", b"\rlong text\ry"),
        (b"x\r1\x1b[A\r2\r3", b"x\r1\x1b[A\r3"),
        (b"10%\r20%\r", b"10%\r20%\r"),
        (b"\r1\r2\r", b"\r2\r"),
    ],
)
def test_what_is_left(data: bytes, left: bytes) -> None:
    assert without_overwritten(data) == left
