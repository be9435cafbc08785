"""What clients say about jobs: submit, list, wait, cancel."""

from __future__ import annotations

from gpulayer.protocol.message import Digest, JobId, Message
from gpulayer.protocol.records import InputFile, JobStatus
from gpulayer.spec import AnyJob
from gpulayer.states import JobState


class SubmitJob(Message, frozen=True, kw_only=True):
    """`idempotency_key`: the same key with the same request answers with the job that was made first."""

    spec: AnyJob
    idempotency_key: str
    source: Digest | None = None
    inputs: dict[str, InputFile] = {}


class ListJobs(Message, frozen=True, kw_only=True):
    state: JobState | None = None
    limit: int = 50
    before: str | None = None


class JobList(Message, frozen=True, kw_only=True):
    jobs: tuple[JobStatus, ...]
    next: str | None = None  # give it as `before` for the page after this one


class GetJob(Message, frozen=True, kw_only=True):
    """Held up to `wait` seconds until the job is terminal, or, with `after_revision`, until its record is newer than that."""

    job_id: JobId
    wait: float = 0.0
    after_revision: int | None = None


class CancelJob(Message, frozen=True, kw_only=True):
    job_id: JobId
    force: bool = False  # no grace: killed at once
