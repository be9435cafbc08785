"""A table of metrics: its rows and columns, its text, and what it becomes elsewhere."""

from __future__ import annotations

import math
import sys
import types

import pytest

from gpulayer.client.metrics import table_of
from gpulayer.errors import Unsupported
from gpulayer.protocol import JobId, MetricBatch, MetricPage, MetricPoint

JOB = JobId("j1")


def page(*points, attempt=1, **counts):
    batch = MetricBatch(attempt=attempt, node=0, number=1, points=points)
    return MetricPage(batches=(batch,) if points else (), next=1, complete=True, **counts)


def point(rank, step, **values):
    return MetricPoint(rank=rank, step=step, time=10.5, values=values)


@pytest.fixture
def table():
    first = page(point(0, 0, loss=1.5), point(1, 0, loss="nan", lr=0.1))
    return table_of(JOB, [first, page(point(0, None, accuracy=0.9), attempt=2, received=3, kept=3)])


def test_rows_are_what_was_logged_and_columns_hold_none_where_nothing_was(table):
    assert len(table) == 3
    assert table[0] == {"attempt": 1, "rank": 0, "step": 0, "time": 10.5, "loss": 1.5}
    assert math.isnan(table[1]["loss"])
    assert [row["rank"] for row in table] == [0, 1, 0]
    assert table[-1:] == [{"attempt": 2, "rank": 0, "step": None, "time": 10.5, "accuracy": 0.9}]
    assert table.columns == ("attempt", "rank", "step", "time", "loss", "lr", "accuracy")
    assert (table.names, table.ranks) == (("loss", "lr", "accuracy"), (0, 1))
    assert table.column("lr") == [None, 0.1, None]
    assert table.column("attempt") == [1, 1, 2]
    with pytest.raises(KeyError):
        table.column("other")


def test_it_reads_well(table):
    assert repr(table).splitlines() == [
        "<metrics of job j1: 3 rows of 2 ranks, steps 0 to 0>",
        "rank  step  loss   lr  accuracy",
        "   0     0   1.5    –         –",
        "   1     0   nan  0.1         –",
        "   0     –     –    –       0.9",
    ]
    assert repr(table_of(JOB, [page()])) == "<metrics of job j1: none>"
    many = table_of(JOB, [page(*[point(0, step, **{f"m{name}": 1.0 for name in range(10)}) for step in range(1000)])])
    lines = repr(many).splitlines()
    assert lines[0] == "<metrics of job j1: 1,000 rows of rank 0, steps 0 to 999>"
    assert lines[2] == "…"
    assert lines[-1] == "and 2 more metrics: see .names"
    assert len(lines) == 9


def test_what_is_missing_is_said():
    said = repr(table_of(JOB, [page(point(0, 1, loss=1.0), received=9000, kept=1000, lost=20)]))
    assert "thinned out, 1,000 of the job's 9,000 were kept; 20 were lost on the way" in said


@pytest.mark.parametrize(("module", "method"), [("pandas", "to_pandas"), ("pyarrow", "to_arrow")])
def test_without_the_library_it_says_what_to_install(table, monkeypatch, module, method):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Unsupported, match=f"pip install {module}"):
        getattr(table, method)()


def test_for_pandas_it_gives_its_columns(table, monkeypatch):
    def frame(data, columns):
        return data, columns

    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=frame))
    data, columns = table.to_pandas()
    assert tuple(columns) == tuple(data) == table.columns
    assert data["accuracy"] == [None, None, 0.9]


def test_for_arrow_it_gives_its_columns_with_their_types(table, monkeypatch):
    def array(values, **kind):
        return kind["type"], values

    arrow = types.SimpleNamespace(int64=lambda: "int64", float64=lambda: "float64", array=array, table=dict)
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    made = table.to_arrow()
    assert tuple(made) == table.columns
    assert made["step"] == ("int64", [0, 0, None])
    assert made["lr"] == ("float64", [None, 0.1, None])
