"""A job's metrics as its submitter reads them: a table with a row for each call of `gpulayer.log`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from gpulayer.client.tables import html_table
from gpulayer.errors import Unsupported
from gpulayer.protocol import JobId, MetricBatch, MetricPage, MetricPoint

Row = dict[str, Any]

_KEYS = ("attempt", "rank", "step", "time")
_SHOWN_ROWS = 5
_SHOWN_NAMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCounts:
    """How much of what was logged is in the store.

    Args:
        received: points that reached the control plane.
        kept: those of them that it kept; fewer once the job has logged more than is kept in full.
        lost: points that are known to have been dropped on the way.
    """

    received: int = 0
    kept: int = 0
    lost: int = 0


class MetricTable(Sequence[Row]):
    """Metrics in the order in which they were stored; those of one rank in the order in which it logged them.

    A row is a dictionary with `attempt`, `rank`, `step`, `time` (UTC seconds) and the values of one call. Rows are made when they
    are asked for.

    Args:
        job_id: whose.
        batches: as they were read.
        counts: of the whole job.
    """

    def __init__(self, job_id: JobId, batches: Iterable[MetricBatch], counts: MetricCounts) -> None:
        self._job_id = job_id
        self._points: list[tuple[int, MetricPoint]] = [(batch.attempt, point) for batch in batches for point in batch.points]
        self._names = tuple(dict.fromkeys(name for _, point in self._points for name in point.values))
        self.counts = counts

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics, in the order of their first appearance."""
        return self._names

    @property
    def columns(self) -> tuple[str, ...]:
        """`attempt`, `rank`, `step`, `time`, and the metrics."""
        return (*_KEYS, *self._names)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that logged any."""
        return tuple(sorted({point.rank for _, point in self._points}))

    def column(self, name: str) -> list[Any]:
        """One column, with None in rows that have no such value.

        Raises:
            KeyError: there is none of this name.
        """
        if name not in self.columns:
            raise KeyError(name)
        if name == "attempt":
            return [attempt for attempt, _ in self._points]
        if name in _KEYS:
            return [getattr(point, name) for _, point in self._points]
        return [float(value) if (value := point.values.get(name)) is not None else None for _, point in self._points]

    def to_pandas(self) -> Any:
        """A pandas DataFrame with these columns; what a row lacks is NaN.

        Raises:
            Unsupported: pandas is not installed here.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise Unsupported("A DataFrame needs pandas here.", found=str(error), fix="pip install pandas") from error
        return pd.DataFrame({name: self.column(name) for name in self.columns}, columns=list(self.columns))

    def to_arrow(self) -> Any:
        """A pyarrow Table with these columns; what a row lacks is null.

        Raises:
            Unsupported: pyarrow is not installed here.
        """
        try:
            import pyarrow as pa
        except ImportError as error:
            raise Unsupported("An Arrow table needs pyarrow here.", found=str(error), fix="pip install pyarrow") from error
        kinds = {"attempt": pa.int64(), "rank": pa.int64(), "step": pa.int64()}
        return pa.table({name: pa.array(self.column(name), type=kinds.get(name, pa.float64())) for name in self.columns})

    def __len__(self) -> int:
        return len(self._points)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [_row(*one) for one in self._points[index]]
        return _row(*self._points[index])

    def __iter__(self) -> Iterator[Row]:
        return (_row(*one) for one in self._points)

    def __repr__(self) -> str:
        if not self._points:
            return f"<metrics of job {self._job_id}: none{self._missing()}>"
        ranks = self.ranks
        where = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
        lines = [f"<metrics of job {self._job_id}: {len(self):,} rows of {where}, {self._steps()}{self._missing()}>"]
        names = self._names[:_SHOWN_NAMES]
        shown = [("rank", "step", *names)]
        for _, point in self._points[-_SHOWN_ROWS:]:
            shown.append((str(point.rank), _text(point.step), *(_text(point.values.get(name)) for name in names)))
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        lines += ["  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in shown]
        if len(self) > _SHOWN_ROWS:
            lines.insert(2, "…")
        if len(self._names) > _SHOWN_NAMES:
            lines.append(f"and {len(self._names) - _SHOWN_NAMES} more metrics: see .names")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The newest rows, for a notebook."""
        names = self._names[:_SHOWN_NAMES]
        rows = [
            (str(point.rank), _text(point.step), *(_text(point.values.get(name)) for name in names))
            for _, point in self._points[-_SHOWN_ROWS:]
        ]
        title = f"{len(self):,} rows, {self._steps()}{self._missing()}"
        title += f"; the last {_SHOWN_ROWS}" if len(self) > _SHOWN_ROWS else ""
        title += f"; {len(self._names) - _SHOWN_NAMES} more metrics in .names" if len(self._names) > _SHOWN_NAMES else ""
        return html_table(("rank", "step", *names), rows, title=title)

    def _steps(self) -> str:
        steps = [point.step for _, point in self._points if point.step is not None]
        return f"steps {min(steps)} to {max(steps)}" if steps else "no steps"

    def _missing(self) -> str:
        said = ""
        if self.counts.kept < self.counts.received:
            said += f"; thinned out, {self.counts.kept:,} of the job's {self.counts.received:,} were kept"
        if self.counts.lost:
            said += f"; {self.counts.lost:,} were lost on the way"
        return said


def table_of(job_id: JobId, pages: Iterable[MetricPage]) -> MetricTable:
    """The table of what these pages hold."""
    batches: list[MetricBatch] = []
    counts = MetricCounts()
    for page in pages:
        batches.extend(page.batches)
        counts = MetricCounts(received=page.received, kept=page.kept, lost=page.lost)
    return MetricTable(job_id, batches, counts)


def _row(attempt: int, point: MetricPoint) -> Row:
    values = {name: float(value) for name, value in point.values.items()}
    return {"attempt": attempt, "rank": point.rank, "step": point.step, "time": point.time, **values}


def _text(value: float | str | None) -> str:
    if value is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
