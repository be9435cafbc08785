"""What a job hands out as lists, with a small HTML table for notebooks: where its time went, and its output files.

Everything in a table is text and is escaped: names and values are other people's. Tables of a terminal are the CLI's.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from gpulayer.client.status_text import bytes_text, duration_text
from gpulayer.client.waterfall import Span
from gpulayer.protocol import OutputFile

MOST_ROWS = 60


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str) -> str:
    """A table under its title; of many rows the first `MOST_ROWS`, and how many there are."""
    head = _cells("th", columns)
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows[:MOST_ROWS])
    more = f"<p>and {len(rows) - MOST_ROWS} more rows</p>" if len(rows) > MOST_ROWS else ""
    return f"<p>{html.escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)


class Waterfall(tuple[Span, ...]):
    """A job's spans (`waterfall.waterfall_of`): a tuple that a notebook shows as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self:
            return "<waterfall: no spans>"
        rows = [("", "step", "from", "time"), *self._rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            f"{who:<{widths[0]}}  {step:<{widths[1]}}  {start:>{widths[2]}}  {time:>{widths[3]}}" for who, step, start, time in rows
        )

    def _repr_html_(self) -> str:
        return html_table(("", "step", "from", "time"), self._rows(), title="Where the time went")

    def _rows(self) -> list[tuple[str, str, str, str]]:
        rows = []
        said = ""
        for span in self:
            who = "job" if span.rank is None else f"rank {span.rank}"
            time = duration_text(span.seconds) + (" so far" if span.so_far else "")
            rows.append((who if who != said else "", span.step, duration_text(span.start), time))
            said = who
        return rows


class OutputFiles(dict[str, OutputFile]):
    """A job's output files by relative path: a dictionary that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = [(path, bytes_text(file.size_bytes)) for path, file in self.items()]
        return html_table(("output", "size"), rows, title=f"{len(self)} output file{'' if len(self) == 1 else 's'}")
