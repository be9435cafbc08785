"""Which place a job's output goes to, by what this shell is and by what its front end has shown that it draws. Runs in the kernel."""

from __future__ import annotations

from typing import Any

from gpulayer_jupyter.defaults import defaults_of
from gpulayer_jupyter.output.cell_display import CellDisplay
from gpulayer_jupyter.output.claims import claim_of
from gpulayer_jupyter.output.display import OutputPlace
from gpulayer_jupyter.output.terminal_display import terminal_place
from gpulayer_jupyter.widgets.front_end import draws_widgets


def place_for(shell: Any, job: Any) -> OutputPlace:
    """Below the cell where a kernel runs, else the terminal."""
    if getattr(shell, "kernel", None) is None:
        return terminal_place()
    view = defaults_of(shell).view
    can_draw = view != "text" and (view == "widget" or draws_widgets(shell))
    claim = None if view == "text" else claim_of(job)
    return CellDisplay(f"gpulayer-{job.id}", claim=claim, make_widget=(lambda: _widget(job)) if can_draw else None)


def show_once(shell: Any, job: Any, notes: list[str]) -> None:
    """Show a job as it stands: a view of the lab extension goes on with it by itself."""
    from gpulayer_jupyter.output.view_text import JobView

    if getattr(shell, "kernel", None) is None:
        return
    view = JobView(job.status, where=job.client.place)
    view.notes += notes
    CellDisplay(f"gpulayer-{job.id}").show(view, [])


def _widget(job: Any) -> Any:
    # Where no widget is made, ipywidgets is never loaded.
    from gpulayer_jupyter.widgets.job_widget import JobWidget

    return JobWidget(job, blocked=True)
