"""A pytest plugin for nbval: an updated display counts with its last content, as a front end shows and saves it; job ids don't count.

nbval compares the first content of a display and passes over its updates; a job's output is one display that is updated while
the job runs. The plugin keeps each display's data as one object and changes it in place when an update comes.
"""

from __future__ import annotations

from typing import Any

import nbformat
from nbval.kernel import RunningKernel
from nbval.plugin import IPyNbCell

JOB_MIME = "application/vnd.gpulayer.job.v1+json"
"""Holds a job's id, which nbval's patterns don't reach: they are for text."""
_get_message = RunningKernel.get_message
_displays: dict[str, Any] = {}


def _get_folded_message(self: RunningKernel, stream: str, timeout: float | None = None) -> dict[str, Any]:
    message = _get_message(self, stream, timeout)
    content = message["content"]
    display_id = content.get("transient", {}).get("display_id") if stream == "iopub" else None
    if display_id and message["msg_type"] == "display_data":
        content["data"] = _displays[display_id] = nbformat.from_dict(content["data"])
    elif display_id and message["msg_type"] == "update_display_data" and display_id in _displays:
        _displays[display_id].clear()
        _displays[display_id].update(nbformat.from_dict(content["data"]))
    return message


_compare_outputs = IPyNbCell.compare_outputs


def _compare_without_job_ids(self: IPyNbCell, test: Any, ref: Any, skip_compare: Any = None) -> Any:
    return _compare_outputs(self, test, ref, (*(skip_compare or self.parent.skip_compare), JOB_MIME))


RunningKernel.get_message = _get_folded_message
IPyNbCell.compare_outputs = _compare_without_job_ids
