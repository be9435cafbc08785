"""What clients say about jobs: submit, list, wait, cancel; and what they see of many, of a job's source and of its views."""

from __future__ import annotations

from gpulayer.protocol.message import Digest, JobId, Message
from gpulayer.protocol.records import InputFile, JobStatus, Progress
from gpulayer.spec import AnyJob
from gpulayer.states import JobState


class SubmitJob(Message, frozen=True, kw_only=True):
    """`idempotency_key`: the same key with the same request answers with the job that was made first.

    `lease_seconds`: the job ends with its client: it is cancelled once `RenewLease` was not heard for that long.
    `requirements`: an artifact, the text that `client.requirements_file` makes of the spec's file.
    """

    spec: AnyJob
    idempotency_key: str
    source: Digest | None = None
    inputs: dict[str, InputFile] = {}
    lease_seconds: float | None = None
    requirements: Digest | None = None


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


class RenewLease(Message, frozen=True, kw_only=True):
    """The client that the job is bound to is alive."""

    job_id: JobId


class LeaseRenewed(Message, frozen=True, kw_only=True):
    ended: bool  # the job has ended, or was never bound: nothing has to be renewed


class JobSummary(Message, frozen=True, kw_only=True):
    """What a list shows of a job: small whatever its ranks, errors and stacks are."""

    job_id: JobId
    name: str
    owner: str
    state: JobState
    revision: int
    nodes: int
    devices: int  # of each node
    accelerator: str | None
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    waiting_for: str | None = None
    cancel_requested: bool = False
    failure: str | None = None  # one line
    progress: Progress | None = None


class ReadViews(Message, frozen=True, kw_only=True):
    """Held up to `wait` seconds until a view draws the job."""

    job_id: JobId
    wait: float = 0.0


class JobViews(Message, frozen=True, kw_only=True):
    """How many output views draw the job at this moment, of those that this control plane serves."""

    count: int


class GetSource(Message, frozen=True, kw_only=True):
    job_id: JobId


class SourceFile(Message, frozen=True, kw_only=True):
    """`text` is None of a file that is no UTF-8 text, too large, or beyond what is given in total."""

    path: str
    size_bytes: int
    text: str | None


class JobSource(Message, frozen=True, kw_only=True):
    """The files of a job's bundle, the script that runs first; empty where the job has no source."""

    files: tuple[SourceFile, ...]
    script: str | None = None  # the one of `files` that the ranks run
    more_files: int = 0  # so many more are in the bundle than are named here
