"""The representations of a job's output: small, escaped, and the job's own type with its id alone."""

from __future__ import annotations

import json

from gpulayer_jupyter.output.bundle import JOB_MIME, WIDGET_MIME, final_bundle, live_bundle
from support.job_views import page, view_of

SAVED_LIMIT_BYTES = 20 * 1000


def test_the_jobs_own_type_holds_its_id_and_nothing_else() -> None:
    assert final_bundle(view_of())[JOB_MIME] == {"job_id": "j1"}


def test_a_widget_is_named_only_while_the_job_runs() -> None:
    view = view_of()
    assert live_bundle(view, widget="m1")[WIDGET_MIME] == {"version_major": 2, "version_minor": 0, "model_id": "m1"}
    assert WIDGET_MIME not in live_bundle(view)
    assert sorted(final_bundle(view)) == [JOB_MIME, "text/html", "text/plain"]


def test_what_a_person_or_a_rank_wrote_is_no_markup() -> None:
    view = view_of(name="<img src=x onerror=alert(1)>")
    view.notes.append("<b>note</b>")
    view.add_page(page(0, "<script>alert('x')</script>&amp;\n"))
    html = final_bundle(view)["text/html"]
    assert "<script" not in html
    assert "<img" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;alert('x')&lt;/script&gt;&amp;amp;" in html


def test_every_output_stays_small_in_the_saved_notebook() -> None:
    for text in ("x\n", "\n", '"quoted" \\ back\n', "é" * 700 + "\n", "<&>" * 50 + "\n", "y" * 30_000 + "\n", "\x1b[31m…\x1b[0m\n"):
        view = view_of(ranks=64)
        for rank in range(64):
            view.add_page(page(rank, text * max(2, 800 // len(text))))
        view.finish()
        saved = json.dumps(final_bundle(view), ensure_ascii=False, indent=1)
        lines = sum(value.count("\n") for value in final_bundle(view).values() if isinstance(value, str))
        assert len(saved.encode()) + 12 * lines < SAVED_LIMIT_BYTES, text[:10]
