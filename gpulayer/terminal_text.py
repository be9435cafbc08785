"""What a terminal shows of a stream of text: the lines that are final, and those that may still change.

`labextension/src/views/logs/terminal.ts` is the same in TypeScript; both are held to `tests/support/terminal_cases.json`, and
ADR-0040 has the rules. Pure: bytes are decoded elsewhere. Runs wherever output is shown as text.
"""

from __future__ import annotations

import re

from gpulayer.terminal_cells import COMPLEX, Row, Style, cells_of

TAIL_ROWS = 200
"""Rows that the cursor can reach; what is above is final. No terminal that a person looks at is higher."""
SCREEN_ROWS = 24
"""Where a row is named by its number, it is one of the last that many: what programs assume of a terminal that tells no size."""
MOST_COLUMNS = 32_768
"""A longer line goes on in the next row, so that one without an end costs no more than others."""
FARTHEST_COLUMN = 999
"""Where moving right ends, since there is no margin."""

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_RUN = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")
_CSI = re.compile(r"\x1b\[([0-?]{0,256})[ -/]{0,16}([@-~])?")  # bounded: a longer one is none
_ESCAPE = re.compile(r"\x1b[ -/]{0,16}([0-~])?")
_STRING_END = re.compile(r"[\x07\n\x18\x1a\x1b\x9c]")
_STRINGS = frozenset("]PX^_")


class TerminalText:
    """One stream of text as a terminal of unlimited width shows it.

    Args:
        keep_styles: colours and weights stay in the lines, as SGR sequences that end in the line where they begin.
    """

    def __init__(self, *, keep_styles: bool = False) -> None:
        self._keep_styles = keep_styles
        self._begin()

    def _begin(self) -> None:
        self._rows: list[str | Row] = [""]  # a str has only plain characters of one column each
        self._row = 0
        self._column = 0
        self._saved = (0, 0)
        self._style = Style()
        self._mark = ""
        self._pending = ""  # a sequence whose end has not come
        self._in_string = False
        self._final: list[str] = []

    def feed(self, text: str) -> list[str]:
        """Take text in, cut anywhere; returns the lines that became final."""
        if not self._append_plain(text):
            self._interpret(self._pending + text)
        final, self._final = self._final, []
        return final

    def open_lines(self) -> list[str]:
        """The lines that may still change, the last of the stream: at most `TAIL_ROWS`."""
        last = len(self._rows)
        while last > self._row and _is_blank(self._rows[last - 1]):
            last -= 1  # where the cursor has been, but nothing stands
        return [_rendered(row) for row in self._rows[:last]]

    def finish(self) -> list[str]:
        """Nothing more comes, or another process's output does: the open lines are final, and styles are over."""
        lines = self.open_lines()
        self._begin()
        return lines

    # ---- plain text, which is nearly all of it

    def _append_plain(self, text: str) -> bool:
        if self._pending or self._in_string or self._mark or self._row != len(self._rows) - 1 or _CONTROL.search(text):
            return False
        row = self._rows[-1]
        if type(row) is not str or len(row) != self._column or (not text.isascii() and COMPLEX.search(text)):
            return False
        lines = text.split("\n")
        lines[0] = row + lines[0]
        if len(text) + len(row) > MOST_COLUMNS and max(map(len, lines)) > MOST_COLUMNS:
            return False
        rows = self._rows
        rows[-1:] = lines
        over = len(rows) - TAIL_ROWS
        if over > 0:
            self._final.extend([row.rstrip(" ") if type(row) is str else _rendered(row) for row in rows[:over]])
            del rows[:over]
            self._saved = (max(0, self._saved[0] - over), self._saved[1])
        self._row = len(rows) - 1
        self._column = len(lines[-1])
        return True

    # ---- everything else

    def _interpret(self, text: str) -> None:
        self._pending = ""
        position, end = 0, len(text)
        while position < end:
            if self._in_string:
                position = self._skip_string(text, position)
                continue
            run = _RUN.match(text, position)
            if run is not None:
                self._put(run.group())
                position = run.end()
                continue
            character = text[position]
            if character == "\x1b":
                taken = self._escape(text, position)
                if taken == 0:
                    self._pending = text[position:]
                    return
                position += taken
                continue
            position += 1
            if character == "\n":
                self._column = 0
                self._line_feed()
            elif character == "\r":
                self._column = 0
            elif character == "\b":
                self._column = max(0, self._column - 1)
            elif character == "\t":
                self._column += 8 - self._column % 8
            elif character in "\v\f":
                self._line_feed()

    def _skip_string(self, text: str, position: int) -> int:
        # A newline ends it too: a title that a crash cut short must not swallow what comes after.
        found = _STRING_END.search(text, position)
        if found is None:
            return len(text)
        self._in_string = False
        return found.start() if found.group() in "\n\x1b" else found.end()

    def _escape(self, text: str, position: int) -> int:
        """The length of the sequence that begins here; 0 where its end has not come."""
        following = text[position + 1 : position + 2]
        if following == "[":
            found = _CSI.match(text, position)
            if found is None:
                return 2
            parameters, final = found.groups()
            length = found.end() - position
            if final is None:
                return 0 if found.end() == len(text) else length
            self._control(parameters, final)
            return length
        if following in _STRINGS and following:
            self._in_string = True
            return 2
        found = _ESCAPE.match(text, position)
        if found is None:
            return 1
        length = found.end() - position
        final = found.group(1)
        if final is None:
            return 0 if found.end() == len(text) else length
        if length == 2:
            self._short_escape(final)
        return length

    def _short_escape(self, final: str) -> None:
        if final == "7":
            self._saved = (self._row, self._column)
        elif final == "8":
            self._row, self._column = min(self._saved[0], len(self._rows) - 1), self._saved[1]
        elif final == "M":
            self._row = max(0, self._row - 1)
        elif final == "D":
            self._line_feed()
        elif final == "E":
            self._column = 0
            self._line_feed()
        elif final == "c":
            self._style = Style()
            self._mark = ""

    def _control(self, parameters: str, final: str) -> None:
        if final == "m":
            if self._keep_styles and not parameters.startswith((">", "<", "=", "?")):
                self._style.apply(parameters)
                self._mark = self._style.sgr()
            return
        if parameters[:1] in ("?", ">", "<", "="):
            return
        numbers = [int(part[:6]) if part.isdecimal() else 0 for part in parameters.split(";")]
        count = max(1, numbers[0])
        match final:
            case "A":
                self._row = max(0, self._row - count)
            case "B" | "e":
                self._row = min(len(self._rows) - 1, self._row + count)
            case "C" | "a":
                self._move_to(self._column + count)
            case "D":
                self._column = max(0, self._column - count)
            case "E":
                self._row, self._column = min(len(self._rows) - 1, self._row + count), 0
            case "F":
                self._row, self._column = max(0, self._row - count), 0
            case "G" | "`":
                self._move_to(count - 1)
            case "H" | "f":
                self._to_screen_row(count - 1)
                self._move_to((numbers[1] if len(numbers) > 1 else 1) - 1)
            case "d":
                self._to_screen_row(count - 1)
            case "J":
                self._erase_screen(numbers[0])
            case "K":
                self._erase_line(numbers[0])
            case "L" | "M":
                self._shift_rows(count if final == "L" else -count)
            case "@" | "P" | "X":
                self._edit_cells(min(count, FARTHEST_COLUMN), final)
            case "s":
                self._saved = (self._row, self._column)
            case "u":
                self._row, self._column = min(self._saved[0], len(self._rows) - 1), self._saved[1]

    # ---- the cursor

    def _line_feed(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append("")
            self._drop_top()

    def _drop_top(self) -> None:
        while len(self._rows) > TAIL_ROWS:
            self._final.append(_rendered(self._rows.pop(0)))
            self._row = max(0, self._row - 1)
            self._saved = (max(0, self._saved[0] - 1), self._saved[1])

    def _move_to(self, column: int) -> None:
        self._column = max(0, min(column, max(FARTHEST_COLUMN, len(self._rows[self._row]))))

    def _to_screen_row(self, number: int) -> None:
        top = max(0, len(self._rows) - SCREEN_ROWS)
        self._row = top + min(number, SCREEN_ROWS - 1)
        while len(self._rows) <= self._row:
            self._rows.append("")

    # ---- cells

    def _put(self, run: str) -> None:
        if not run.isascii() and COMPLEX.search(run):
            leading, cells = cells_of(run)
            if leading and self._column > 0:
                self._cells().join(self._column - 1, leading)
            self._put_wrapped(cells)
        elif self._column + len(run) > MOST_COLUMNS:
            self._put_wrapped(list(run))
        else:
            self._put_plain(run)

    def _put_plain(self, run: str) -> None:
        row, column = self._rows[self._row], self._column
        if type(row) is not str or self._mark:
            self._cells().put(column, list(run), self._mark)
        elif column == len(row):
            self._rows[self._row] = row + run
        elif column > len(row):
            self._rows[self._row] = row.ljust(column) + run
        else:
            self._rows[self._row] = row[:column] + run + row[column + len(run) :]
        self._column = column + len(run)

    def _put_wrapped(self, cells: list[str]) -> None:
        while cells:
            room = max(0, MOST_COLUMNS - self._column)
            if room < len(cells) and cells[room] == "":
                room -= 1  # a wide character is not cut
            taken, cells = cells[: max(0, room)], cells[max(0, room) :]
            if taken:
                self._cells().put(self._column, taken, self._mark)
                self._column += len(taken)
            if cells:
                self._column = 0
                self._line_feed()

    def _cells(self) -> Row:
        row = self._rows[self._row]
        if not isinstance(row, Row):
            row = self._rows[self._row] = Row(row)
        return row

    # ---- erasing and shifting

    def _erase_line(self, which: int) -> None:
        row, column = self._rows[self._row], self._column
        if which == 2:
            self._rows[self._row] = ""
        elif which == 0:
            if isinstance(row, Row):
                row.cut(column)
            else:
                self._rows[self._row] = row[:column]
        elif which == 1:
            width = min(column + 1, len(row))
            if isinstance(row, Row):
                row.put(0, [" "] * width, "")
            else:
                self._rows[self._row] = " " * width + row[width:]

    def _erase_screen(self, which: int) -> None:
        if which == 0:
            self._erase_line(0)
            del self._rows[self._row + 1 :]
        elif which == 1:
            top = max(0, len(self._rows) - SCREEN_ROWS)
            self._rows[top : self._row] = [""] * (self._row - top)
            self._erase_line(1)
        elif which == 2:  # what stood there moves up, as in terminals that keep a cleared screen: a log loses nothing
            self._final.extend(self.open_lines())
            self._rows = [""]
            self._row = 0
            self._saved = (0, 0)

    def _shift_rows(self, count: int) -> None:
        """Insert that many rows at the cursor; where it is negative, delete them."""
        self._column = 0
        if count < 0:
            del self._rows[self._row : self._row - count]
            if self._row >= len(self._rows):
                self._rows.append("")
        else:
            self._rows[self._row : self._row] = [""] * min(count, TAIL_ROWS - self._row)
            del self._rows[TAIL_ROWS:]  # pushed out at the bottom

    def _edit_cells(self, count: int, what: str) -> None:
        row = self._cells()
        if what == "@":
            row.insert(self._column, count)
            row.cut(MOST_COLUMNS)
        elif what == "P":
            row.delete(self._column, count)
        else:
            row.put(self._column, [" "] * max(0, min(count, len(row) - self._column)), "")


def _is_blank(row: str | Row) -> bool:
    return not _rendered(row)


def _rendered(row: str | Row) -> str:
    return row.rendered() if isinstance(row, Row) else row.rstrip(" ")
