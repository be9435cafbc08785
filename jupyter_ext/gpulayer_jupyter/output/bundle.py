"""The representations of a job's output, of which each front end takes the best it can draw (ADR-0039).

The job's own MIME type carries its id and nothing else: a notebook is hostile input. Text of ranks is escaped wherever markup is
read. Runs in the kernel.
"""

from __future__ import annotations

import html
from typing import Any

from gpulayer.protocol import JobStatus
from gpulayer_jupyter.output.view_text import TEXT_LIMIT_BYTES, JobView

JOB_MIME = "application/vnd.gpulayer.job.v1+json"
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"
HTML_LIMIT_BYTES = 4 * 1024
LIVE_TEXT_BYTES = 4 * 1024
LIVE_HTML_BYTES = 2 * 1024
"""While the job runs, less is shown than in the end: every update carries all of it."""

MAX_HEAD = 600


def final_bundle(view: JobView) -> dict[str, Any]:
    """What stays in the saved notebook."""
    return _bundle(view, TEXT_LIMIT_BYTES, HTML_LIMIT_BYTES)


def live_bundle(view: JobView, *, widget: str | None = None) -> dict[str, Any]:
    """What is shown while the job runs.

    `widget` is the model of a widget that draws it: only while the kernel lives, so never in the final bundle.
    """
    bundle = _bundle(view, LIVE_TEXT_BYTES, LIVE_HTML_BYTES)
    if widget is not None:
        bundle[WIDGET_MIME] = {"version_major": 2, "version_minor": 0, "model_id": widget}
    return bundle


def _bundle(view: JobView, text_bytes: int, html_bytes: int) -> dict[str, Any]:
    return {
        JOB_MIME: {"job_id": view.status.job_id},
        "text/html": html_text(view.status, view.head(), view.lines(html_bytes, _escaped)),
        "text/plain": view.text(text_bytes),
    }


def html_text(status: JobStatus, head: list[str], lines: list[str]) -> str:
    """The job in a little HTML: what stands above the lines, and the lines, escaped."""
    top = "<br>".join(html.escape(_cut(line)) for line in head)
    body = _escaped("\n".join(lines))
    drawn = f"<pre>{body}</pre>" if lines else ""
    return f'<div class="gpulayer-job" data-state="{html.escape(status.state)}"><p>{top}</p>{drawn}</div>'


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)


def _cut(line: str) -> str:
    return line if len(line) <= MAX_HEAD else f"{line[:MAX_HEAD]}…"
