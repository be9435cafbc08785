"""The cells of one row of a terminal: what stands in each column, and how it looks.

`terminal_text` moves the cursor; here is only what a row and a style are. Pure.
"""

from __future__ import annotations

import re

_ZERO = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4"
    "\u06e7\u06e8\u06ea-\u06ed\u0900-\u0902\u093a\u093c\u0941-\u0948\u094d\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u1ab0-\u1aff\u1dc0-\u1dff"
    "\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\u20d0-\u20f0\u3099\u309a\ufe00-\ufe0f\ufe20-\ufe2f\ufeff\U000e0100-\U000e01ef"
)
_WIDE = (
    "\u1100-\u115f\u231a\u231b\u2329\u232a\u23e9-\u23ec\u23f0\u23f3\u25fd\u25fe\u2614\u2615\u2648-\u2653\u267f\u2693\u26a1\u26aa\u26ab"
    "\u26bd\u26be\u26c4\u26c5\u26ce\u26d4\u26ea\u26f2\u26f3\u26f5\u26fa\u26fd\u2705\u270a\u270b\u2728\u274c\u274e\u2753-\u2755\u2757"
    "\u2795-\u2797\u27b0\u27bf\u2b1b\u2b1c\u2b50\u2b55\u2e80-\u3029\u3030-\u303e\u3041-\u3098\u309b-\u4dbf\u4e00-\ua4cf\ua960-\ua97c"
    "\uac00-\ud7a3\uf900-\ufaff\ufe10-\ufe19\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\U0001f004\U0001f0cf\U0001f18e\U0001f191-\U0001f19a"
    "\U0001f200-\U0001f320\U0001f32d-\U0001f335\U0001f337-\U0001f37c\U0001f37e-\U0001f393\U0001f3a0-\U0001f3ca\U0001f3cf-\U0001f3d3"
    "\U0001f3e0-\U0001f3f0\U0001f3f4\U0001f3f8-\U0001f43e\U0001f440\U0001f442-\U0001f4fc\U0001f4ff-\U0001f53d\U0001f54b-\U0001f54e"
    "\U0001f550-\U0001f567\U0001f57a\U0001f595\U0001f596\U0001f5a4\U0001f5fb-\U0001f64f\U0001f680-\U0001f6c5\U0001f6cc\U0001f6d0-\U0001f6d2"
    "\U0001f6d5-\U0001f6d7\U0001f6dc-\U0001f6df\U0001f6eb\U0001f6ec\U0001f6f4-\U0001f6fc\U0001f7e0-\U0001f7eb\U0001f7f0\U0001f90c-\U0001f93a"
    "\U0001f93c-\U0001f945\U0001f947-\U0001f9ff\U0001fa70-\U0001faff\U00020000-\U0003fffd"
)
# The tables name what programs print, in both languages alike; each language's own would differ with its version of Unicode.
_ZERO_WIDTH = re.compile(f"[{_ZERO}]")
_WIDE_CHARACTER = re.compile(f"[{_WIDE}]")
COMPLEX = re.compile(f"[{_ZERO}{_WIDE}\ud800-\udfff\U00010000-\U0010ffff]")
"""What does not stand alone in one column. All beyond U+FFFF is among it: in TypeScript it takes two places of a string."""

_MOST_IN_CELL = 12
"""Characters of no width that one cell takes; what comes after is dropped."""


def cells_of(text: str) -> tuple[str, list[str]]:
    """Characters of no width that belong to the cell before, and a cell for each column: "" for a wide one's second."""
    leading = ""
    cells: list[str] = []
    for character in text:
        if _ZERO_WIDTH.match(character):
            if cells:
                at = -2 if cells[-1] == "" else -1
                if len(cells[at]) < _MOST_IN_CELL:
                    cells[at] += character
            else:
                leading += character
        else:
            cells.append(character)
            if _WIDE_CHARACTER.match(character):
                cells.append("")
    return leading, cells


class Row:
    """One row whose columns hold more than plain characters."""

    __slots__ = ("_cells", "_marks")

    def __init__(self, text: str) -> None:
        self._cells = list(text)
        self._marks = [""] * len(text)

    def __len__(self) -> int:
        return len(self._cells)

    def put(self, column: int, cells: list[str], mark: str) -> None:
        self._fill(column)
        self._part(column)
        self._part(column + len(cells))
        self._cells[column : column + len(cells)] = cells
        self._marks[column : column + len(cells)] = [mark] * len(cells)

    def join(self, column: int, text: str) -> None:
        """Add characters of no width to the one that stands there."""
        if column < len(self._cells):
            at = column - 1 if column > 0 and self._cells[column] == "" else column
            self._cells[at] = (self._cells[at] + text)[:_MOST_IN_CELL]

    def cut(self, column: int) -> None:
        self._part(column)
        del self._cells[column:], self._marks[column:]

    def insert(self, column: int, count: int) -> None:
        if column < len(self._cells):
            self._part(column)
            self._cells[column:column] = [" "] * count
            self._marks[column:column] = [""] * count

    def delete(self, column: int, count: int) -> None:
        self._part(column)
        self._part(column + count)
        del self._cells[column : column + count], self._marks[column : column + count]

    def rendered(self) -> str:
        """Its text to the last cell that shows something; each stretch of one style begins and ends itself."""
        cells, marks = self._cells, self._marks
        end = len(cells)
        while end and cells[end - 1] == " " and not marks[end - 1]:
            end -= 1
        parts: list[str] = []
        start = 0
        while start < end:
            mark = marks[start]
            stop = start + 1
            while stop < end and marks[stop] == mark:
                stop += 1
            text = "".join(cells[start:stop])
            parts.append(f"\x1b[{mark}m{text}\x1b[0m" if mark else text)
            start = stop
        return "".join(parts)

    def _fill(self, column: int) -> None:
        missing = column - len(self._cells)
        if missing > 0:
            self._cells.extend([" "] * missing)
            self._marks.extend([""] * missing)

    def _part(self, column: int) -> None:
        """Half a wide character is none: a blank stays of the half that is kept."""
        if 0 < column < len(self._cells) and self._cells[column] == "":
            self._cells[column - 1] = self._cells[column] = " "


class Style:
    """How text looks, as SGR sequences have changed it. What blinks or hides is shown as the rest is."""

    _SWITCHES = {1: "1", 2: "2", 3: "3", 4: "4", 7: "7", 9: "9", 21: "4"}
    _OFF = {22: ("1", "2"), 23: ("3",), 24: ("4",), 27: ("7",), 29: ("9",)}

    __slots__ = ("_background", "_foreground", "_on")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._on: set[str] = set()
        self._foreground = ""
        self._background = ""

    def sgr(self) -> str:
        """The parameters that make this style from the default one; "" for that."""
        return ";".join([*sorted(self._on), *filter(None, (self._foreground, self._background))])

    def apply(self, parameters: str) -> None:
        parts = parameters.split(";")
        position = 0
        while position < len(parts):
            part = parts[position]
            position += 1
            fields = part.split(":")
            code = _number(fields[0])
            if code in (38, 48, 58):
                if len(fields) == 1:  # the colour follows as parameters of their own
                    taken = 4 if parts[position : position + 1] == ["2"] else 2
                    colour = _colour(code, parts[position : position + taken])
                    position += taken
                else:
                    colour = _colour(code, [field for field in fields[1:] if field])
                self._set_colour(code, colour)
            elif code == 4 and len(fields) > 1 and _number(fields[1]) == 0:
                self._on.discard("4")
            else:
                self._switch(code)

    def _switch(self, code: int) -> None:
        if code == 0:
            self._clear()
        elif code in self._SWITCHES:
            self._on.add(self._SWITCHES[code])
        elif code in self._OFF:
            self._on.difference_update(self._OFF[code])
        elif 30 <= code <= 37 or 90 <= code <= 97:
            self._foreground = str(code)
        elif 40 <= code <= 47 or 100 <= code <= 107:
            self._background = str(code)
        elif code == 39:
            self._foreground = ""
        elif code == 49:
            self._background = ""

    def _set_colour(self, code: int, colour: str) -> None:
        if colour and code == 38:
            self._foreground = colour
        elif colour and code == 48:
            self._background = colour


def _number(text: str) -> int:
    return int(text[:6]) if text.isdecimal() and text.isascii() else 0


def _colour(code: int, parts: list[str]) -> str:
    """`5;n` or `2;r;g;b` as SGR parameters; "" where they name no colour."""
    numbers = [_number(part) for part in parts]
    if len(numbers) >= 2 and numbers[0] == 5 and numbers[1] <= 255:
        return f"{code};5;{numbers[1]}"
    if len(numbers) >= 4 and numbers[0] == 2 and max(numbers[-3:]) <= 255:
        return f"{code};2;" + ";".join(map(str, numbers[-3:]))
    return ""
