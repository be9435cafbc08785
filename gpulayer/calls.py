"""The table of calls: each names its HTTP method, its path below `/gpulayer`, its messages and who may use it.

The server's handlers, both transports and the OpenAPI document are made from `CALLS`; nothing else spells a path. Fields of
a request that stand in its path come from there; the others travel as JSON body (POST) or as query (GET).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Literal

import msgspec

from gpulayer.protocol import (
    AcquireTask,
    AppendDisplays,
    AppendLogs,
    AppendMetrics,
    CancelJob,
    CreateJoinToken,
    DisplayPage,
    Done,
    DrainWorker,
    EventPage,
    FinishTask,
    GetHealth,
    GetJob,
    GetSource,
    Health,
    Heartbeat,
    HeartbeatReply,
    JobList,
    JobSource,
    JobStatus,
    JobViews,
    JoinToken,
    LeaseRenewed,
    LeaveWorker,
    ListJobs,
    ListWorkers,
    LogPage,
    Message,
    MetricPage,
    PublishRendezvous,
    ReadDisplays,
    ReadEvents,
    ReadLogs,
    ReadMetrics,
    ReadRendezvous,
    ReadStream,
    ReadViews,
    Registered,
    RegisterWorker,
    Rendezvous,
    RenewLease,
    ReportFailure,
    ReportProgress,
    StartLocalWorkers,
    StartTask,
    StreamFrames,
    SubmitJob,
    TaskFinished,
    WorkerList,
    WorkerOrders,
)

API_PREFIX = "/gpulayer"


class Role(StrEnum):
    """What kind of credential a caller holds (docs: Security)."""

    CLIENT = "client"
    WORKER = "worker"
    JOIN = "join"


class Action(StrEnum):
    """What a call does to the resource `gpulayer`, in the words of Jupyter's authoriser."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table of calls."""

    name: str
    method: Literal["GET", "POST"]
    path: str
    request: type[Message]
    response: type[Message]
    roles: frozenset[Role]
    action: Action
    summary: str

    @property
    def path_fields(self) -> tuple[str, ...]:
        return tuple(re.findall(r"{(\w+)}", self.path))


def _call(name: str, where: str, request: type[Message], response: type[Message], action: Action, *roles: Role, summary: str) -> Call:
    method, path = where.split()
    assert method in ("GET", "POST")
    return Call(
        name=name,
        method="GET" if method == "GET" else "POST",
        path=path,
        request=request,
        response=response,
        roles=frozenset(roles),
        action=action,
        summary=summary,
    )


_C, _W, _JOIN = Role.CLIENT, Role.WORKER, Role.JOIN
_R, _WR, _X = Action.READ, Action.WRITE, Action.EXECUTE

CALLS: dict[str, Call] = {
    call.name: call
    for call in (
        _call("submit", "POST /v1/jobs", SubmitJob, JobStatus, _X, _C, summary="Submit a job"),
        _call("list_jobs", "GET /v1/jobs", ListJobs, JobList, _R, _C, summary="Jobs, newest first"),
        _call("wait_job", "GET /v1/jobs/{job_id}", GetJob, JobStatus, _R, _C, summary="One job, now or once it has changed or ended"),
        _call("cancel", "POST /v1/jobs/{job_id}/cancel", CancelJob, JobStatus, _WR, _C, summary="Stop a job"),
        _call("renew_lease", "POST /v1/jobs/{job_id}/lease", RenewLease, LeaseRenewed, _WR, _C, summary="A bound job's client is alive"),
        _call("read_logs", "GET /v1/jobs/{job_id}/logs", ReadLogs, LogPage, _R, _C, summary="A job's output from a cursor on"),
        _call("read_metrics", "GET /v1/jobs/{job_id}/metrics", ReadMetrics, MetricPage, _R, _C, summary="A job's metrics from a cursor on"),
        _call(
            "read_displays",
            "GET /v1/jobs/{job_id}/displays",
            ReadDisplays,
            DisplayPage,
            _R,
            _C,
            summary="A job's rich output from a cursor on",
        ),
        _call("read_source", "GET /v1/jobs/{job_id}/source", GetSource, JobSource, _R, _C, summary="The files of a job's source"),
        _call("read_views", "GET /v1/jobs/{job_id}/views", ReadViews, JobViews, _R, _C, summary="How many output views draw a job"),
        _call(
            "read_stream",
            "POST /v1/stream",
            ReadStream,
            StreamFrames,
            _R,
            _C,
            summary="What has changed of all that a browser's tab follows",
        ),
        _call("read_events", "GET /v1/events", ReadEvents, EventPage, _R, _C, summary="What has changed since a cursor"),
        _call("list_workers", "GET /v1/workers", ListWorkers, WorkerList, _R, _C, summary="Workers and their devices"),
        _call("register_worker", "POST /v1/workers", RegisterWorker, Registered, _X, _C, _JOIN, _W, summary="A worker joins or comes back"),
        _call(
            "start_local_workers", "POST /v1/workers/local", StartLocalWorkers, WorkerList, _X, _C, summary="Start workers on this machine"
        ),
        _call("drain_worker", "POST /v1/workers/{worker_id}/drain", DrainWorker, Done, _WR, _C, summary="Give a worker nothing more"),
        _call("create_join_token", "POST /v1/tokens/join", CreateJoinToken, JoinToken, _X, _C, summary="A token for one more worker"),
        _call("get_health", "GET /v1/health", GetHealth, Health, _R, _C, _W, _JOIN, summary="Version, protocol and counts"),
        _call(
            "acquire_task",
            "POST /v1/worker/acquire",
            AcquireTask,
            WorkerOrders,
            _WR,
            _W,
            summary="Assignments and orders, held until there are some",
        ),
        _call("heartbeat", "POST /v1/worker/heartbeat", Heartbeat, HeartbeatReply, _WR, _W, summary="A busy worker is alive"),
        _call("leave_worker", "POST /v1/worker/leave", LeaveWorker, Done, _WR, _W, summary="A worker takes its leave"),
        _call("start_task", "POST /v1/worker/tasks/{task_id}/start", StartTask, Done, _WR, _W, summary="The process runs"),
        _call(
            "append_logs",
            "POST /v1/worker/tasks/{task_id}/logs",
            AppendLogs,
            Done,
            _WR,
            _W,
            summary="Output of an attempt; a resend stores nothing twice",
        ),
        _call(
            "append_metrics",
            "POST /v1/worker/tasks/{task_id}/metrics",
            AppendMetrics,
            Done,
            _WR,
            _W,
            summary="Metrics of an attempt; a resend stores nothing twice",
        ),
        _call(
            "append_displays",
            "POST /v1/worker/tasks/{task_id}/displays",
            AppendDisplays,
            Done,
            _WR,
            _W,
            summary="Rich output of an attempt; a resend stores nothing twice",
        ),
        _call("report_progress", "POST /v1/worker/tasks/{task_id}/progress", ReportProgress, Done, _WR, _W, summary="How far the job is"),
        _call(
            "publish_rendezvous", "POST /v1/worker/tasks/{task_id}/rendezvous", PublishRendezvous, Done, _WR, _W, summary="Where ranks meet"
        ),
        _call(
            "read_rendezvous",
            "GET /v1/worker/tasks/{task_id}/rendezvous",
            ReadRendezvous,
            Rendezvous,
            _R,
            _W,
            summary="Where ranks meet, held until it is known",
        ),
        _call(
            "report_failure",
            "POST /v1/worker/tasks/{task_id}/failure",
            ReportFailure,
            Done,
            _WR,
            _W,
            summary="A rank has failed: stop its siblings",
        ),
        _call("finish_task", "POST /v1/worker/tasks/{task_id}/finish", FinishTask, TaskFinished, _WR, _W, summary="How an attempt ended"),
    )
}

LOG_DOWNLOAD_PATH = "/v1/jobs/{job_id}/log.txt"
"""GET `?rank=&form=plain|raw`: all the output there is, as a file."""
ARTIFACT_PATH = "/v1/artifacts/{sha256}"
"""HEAD: is it here (200 or 404). GET: its bytes. PUT `?offset=&total=`: one part; the last one checks the digest."""
