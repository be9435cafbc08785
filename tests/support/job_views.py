"""Records, pages of output and views of a job that was never run."""

from __future__ import annotations

from typing import Any

from gpulayer_jupyter.output.view_text import JobView

from gpulayer.protocol import JobId, JobStatus, LogChunk, LogPage
from gpulayer.spec import DistributedJob
from gpulayer.states import JobState


def status_of(state: JobState = JobState.RUNNING, **fields: Any) -> JobStatus:
    return JobStatus(
        **{
            "job_id": JobId("j1"),
            "name": "digits",
            "owner": "me",
            "spec": DistributedJob(script="main.py", nodes=2, devices=2),
            "state": state,
            "revision": 1,
            "attempt": 1,
            "accelerator": "cpu",
            "created_at": 0.0,
            "started_at": 10.0,
        }
        | fields
    )


def page(rank: int | None, text: str, stream: str = "stdout", first_line: int = 0, offset: int = 0) -> LogPage:
    chunk = LogChunk(
        attempt=1,
        node=0,
        rank=rank,
        stream=stream,
        offset=offset,
        first_line=first_line,
        time=1.0,
        data=text.encode(),  # type: ignore[arg-type]
    )
    return LogPage(chunks=(chunk,), next=1, complete=False)


def view_of(*, ranks: int = 4, **fields: Any) -> JobView:
    spec = DistributedJob(script="main.py", nodes=2, devices=ranks // 2)
    return JobView(status_of(**{"spec": spec} | fields), where="here", clock=lambda: 12.5)
