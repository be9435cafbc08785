"""A job as a widget: an ordinary ipywidget on anywidget, to be laid out with others. What it says lies in `session.py`.

Its state is the job's id and the loader; text travels by message, so that no notebook holds it. Runs in the kernel.
"""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from gpulayer_jupyter.widgets.module import loader, views_module
from gpulayer_jupyter.widgets.session import JobSession


class JobWidget(anywidget.AnyWidget):
    """A live view of one job: `job.widget()`."""

    _esm = loader()
    job_id = traitlets.Unicode().tag(sync=True)

    def __init__(self, job: Any, *, blocked: bool = False) -> None:
        super().__init__(job_id=job.id)
        self._said = f"<JobWidget of job {job.id} {job.name!r}>"
        self._session = JobSession(job, self.send, views_module(), blocked=blocked)
        self.on_msg(self._hear)

    def __repr__(self) -> str:
        return self._said

    def retire(self) -> None:
        """The cell's output goes on without it."""
        self.close()

    def close(self) -> None:
        """End the view in every front end; the job goes on."""
        self._session.close()
        super().close()

    def _hear(self, widget: Any, content: Any, buffers: Any) -> None:  # noqa: ARG002 - ipywidgets' signature
        if isinstance(content, dict):
            self._session.hear(content)
