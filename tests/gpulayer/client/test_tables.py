"""What notebooks show of spans, outputs and metrics: tables, and all in them is text."""

from __future__ import annotations

from gpulayer.client.metrics import table_of
from gpulayer.client.tables import MOST_ROWS, OutputFiles, Waterfall, html_table
from gpulayer.client.waterfall import Span
from gpulayer.protocol import MetricBatch, MetricPage, MetricPoint, OutputFile


def test_text_is_no_markup_and_many_rows_are_counted():
    drawn = html_table(("<a>",), [("<b>&",)] * (MOST_ROWS + 2), title="<i>")
    assert "<p>&lt;i&gt;</p>" in drawn
    assert "<th>&lt;a&gt;</th>" in drawn
    assert drawn.count("<td>&lt;b&gt;&amp;</td>") == MOST_ROWS
    assert drawn.endswith("<p>and 2 more rows</p>")


def test_a_waterfall_is_a_tuple_that_reads_as_a_table():
    spans = [Span(step="queued", start=0.0, end=0.5, attempt=1), Span(step="steps", start=0.5, end=2.5, rank=1, attempt=1, so_far=True)]
    waterfall = Waterfall(spans)
    assert waterfall == tuple(spans)
    assert repr(waterfall).splitlines() == [
        "        step      from           time",
        "job     queued  0.0 ms         500 ms",
        "rank 1  steps   500 ms  2.00 s so far",
    ]
    assert "<tr><td>rank 1</td><td>steps</td><td>500 ms</td><td>2.00 s so far</td></tr>" in waterfall._repr_html_()
    assert repr(Waterfall()) == "<waterfall: no spans>"


def test_outputs_are_a_dictionary_that_reads_as_a_table():
    files = OutputFiles({"a<b.txt": OutputFile(path="a<b.txt", sha256="0" * 64, size_bytes=1500)})
    assert list(files) == ["a<b.txt"]
    assert "<p>1 output file</p>" in files._repr_html_()
    assert "<td>a&lt;b.txt</td><td>1.5 kB</td>" in files._repr_html_()


def test_of_metrics_the_newest_rows_are_shown():
    points = tuple(MetricPoint(rank=0, step=step, time=1.0, values={"<loss>": step / 2}) for step in range(7))
    drawn = table_of(
        "j1", [MetricPage(batches=(MetricBatch(attempt=1, node=0, number=1, points=points),), next=1, complete=True)]
    )._repr_html_()
    assert "<p>7 rows, steps 0 to 6; the last 5</p>" in drawn
    assert "<th>&lt;loss&gt;</th>" in drawn
    assert "<td>6</td><td>3</td>" in drawn
    assert drawn.count("<tr>") == 6
