"""What a browser's tab follows, and the frames that it gets: over one WebSocket, or over one multiplexed long poll.

A subscription names where to go on from; a frame names where it ends, so that whoever comes back with that misses nothing and
gets nothing twice. What is read for it lives in `gpulayer.control.following`, sockets in `gpulayer_server.stream`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gpulayer.protocol.jobs import JobSummary
from gpulayer.protocol.logs import LogPage
from gpulayer.protocol.message import JobId, Message
from gpulayer.protocol.metrics import MetricPage
from gpulayer.protocol.records import JobStatus

STREAM_PATH = "/v1/stream"
MOST_SUBSCRIPTIONS = 200
"""Of one tab: a notebook of fifty outputs, with a record, a log and the metrics of each."""

_Id = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]  # what JavaScript counts exactly
_Cursor = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
_JobName = Annotated[JobId, msgspec.Meta(max_length=200)]


class FollowJob(Message, frozen=True, kw_only=True, tag_field="kind", tag="job"):
    """A job's record, now where it is newer than `after_revision`, and whenever it has changed."""

    job_id: _JobName
    after_revision: int | None = None
    shows: bool = False  # an output view draws the job: it counts (`JobViews`) as long as this is subscribed


class FollowLogs(Message, frozen=True, kw_only=True, tag_field="kind", tag="logs"):
    """A job's output behind `after`; with `tail_bytes` and `after` 0, about the last that many bytes of it."""

    job_id: _JobName
    rank: int | None = None
    after: _Cursor = 0
    tail_bytes: _Cursor | None = None


class FollowMetrics(Message, frozen=True, kw_only=True, tag_field="kind", tag="metrics"):
    """A job's metrics behind `after`."""

    job_id: _JobName
    after: _Cursor = 0


class FollowJobs(Message, frozen=True, kw_only=True, tag_field="kind", tag="jobs"):
    """The newest jobs, then those that have changed; with `after`, the `next` of an earlier frame, the changes since."""

    limit: int = 100
    after: _Cursor | None = None


Followed = FollowJob | FollowLogs | FollowMetrics | FollowJobs


class Subscribe(Message, frozen=True, kw_only=True, tag_field="type", tag="subscribe"):
    """Begin to send what is followed; `id` is the tab's own name for it. An id that is in use is begun anew."""

    id: _Id
    to: Followed


class Unsubscribe(Message, frozen=True, kw_only=True, tag_field="type", tag="unsubscribe"):
    """Send nothing more of it."""

    id: _Id


StreamRequest = Subscribe | Unsubscribe
"""What a tab says."""


class StreamError(Message, frozen=True, kw_only=True):
    """An error as the HTTP calls answer it."""

    code: str
    status: int
    message: str
    asked: str | None = None
    found: str | None = None
    fix: str | None = None


class HelloFrame(Message, frozen=True, kw_only=True, tag_field="type", tag="hello"):
    """The first frame of a socket. `instance`: of this start of the server."""

    version: str
    protocol: int
    instance: str
    time: float  # UTC seconds by the server's clock, when it was sent


class JobFrame(Message, frozen=True, kw_only=True, tag_field="type", tag="job"):
    """Go on with `status.revision`."""

    id: int
    status: JobStatus


class LogsFrame(Message, frozen=True, kw_only=True, tag_field="type", tag="logs"):
    """Go on with `page.next`, which may have moved without a chunk; a page that is `complete` is the last one."""

    id: int
    page: LogPage


class MetricsFrame(Message, frozen=True, kw_only=True, tag_field="type", tag="metrics"):
    """Go on with `page.next`; a page that is `complete` is the last one."""

    id: int
    page: MetricPage


class JobsFrame(Message, frozen=True, kw_only=True, tag_field="type", tag="jobs"):
    """Newest first. `whole`: these are all of them, forget others; else those that changed. Go on with `next`."""

    id: int
    jobs: tuple[JobSummary, ...]
    next: int
    whole: bool


class FailedFrame(Message, frozen=True, kw_only=True, tag_field="type", tag="failed"):
    """The subscription is over; `id` is None where what the tab said named none."""

    id: int | None
    error: StreamError


StreamFrame = HelloFrame | JobFrame | LogsFrame | MetricsFrame | JobsFrame | FailedFrame
"""What a tab gets."""


class ReadStream(Message, frozen=True, kw_only=True):
    """The multiplexed long poll: held up to `wait` seconds until one of the subscriptions has something; the tab moves its cursors.

    A poll's `shows` counts until shortly after its answer, so that it lasts from one poll to the next.
    """

    subscriptions: Annotated[dict[int, Followed], msgspec.Meta(max_length=MOST_SUBSCRIPTIONS)]
    wait: float = 0.0


class StreamFrames(Message, frozen=True, kw_only=True):
    frames: tuple[StreamFrame, ...]
