"""How listings are printed: a table for people, one JSON object a line for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

PIPE_WIDTH = 500
"""A table that goes into a pipe is not folded to a terminal's width."""


def print_listing(records: Iterable[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool, empty: str) -> None:
    """Print the records: as JSON whole, as a table the columns named; a missing or None field is an empty cell."""
    if as_json:
        for record in records:
            print(json.dumps(record))
        return
    rows = [[record.get(column) for column in columns] for record in records]
    if not rows:
        print(empty)
        return
    print_table(rows, columns)


def print_table(rows: Iterable[Sequence[Any]], columns: Sequence[str], *, right: Sequence[str] = ()) -> None:
    """Print rows under their columns, those of `right` flush right; None is an empty cell."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold", justify="right" if column in right else "left")
    for row in rows:
        # Text, not markup: names and reasons are other people's words.
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False).print(table)


def printable(value: Any) -> str:
    """A stored value as one line of text; None is empty."""
    if value is None:
        return ""
    # Control characters in a stored name must not steer somebody's terminal.
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(value))
