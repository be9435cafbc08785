"""The messages between clients, workers and the control plane; `calls.py` says which call carries which.

Unknown fields are ignored, so that version N and N−1 work together. Times are UTC seconds since the epoch, stamped by the
control plane unless said otherwise. Everyone imports them from here.
"""

from __future__ import annotations

from gpulayer.protocol.attempts import (
    AppendLogs,
    FinishTask,
    PublishRendezvous,
    ReadRendezvous,
    Rendezvous,
    ReportFailure,
    StartTask,
    TaskFinished,
    TaskMessage,
)
from gpulayer.protocol.devices import (
    Device,
)
from gpulayer.protocol.events import (
    Event,
    EventPage,
    ReadEvents,
)
from gpulayer.protocol.jobs import (
    CancelJob,
    GetJob,
    JobList,
    ListJobs,
    SubmitJob,
)
from gpulayer.protocol.logs import (
    LogChunk,
    LogPage,
    ReadLogs,
)
from gpulayer.protocol.message import (
    PROTOCOL_VERSION,
    Digest,
    Done,
    FailureReason,
    JobId,
    Message,
    StopReason,
    Stream,
    TaskId,
    WorkerId,
    works_with,
)
from gpulayer.protocol.orders import (
    AcquireNext,
    AcquireTask,
    AttemptRef,
    StopOrder,
    TaskAssignment,
    WorkerOrders,
)
from gpulayer.protocol.presence import (
    Heartbeat,
    HeartbeatReply,
    LeaveWorker,
    Registered,
    RegisterWorker,
)
from gpulayer.protocol.records import (
    MARKS,
    Failure,
    Frame,
    InputFile,
    JobStatus,
    OutputFile,
    RankError,
    RankOutcome,
    TaskStatus,
    ThreadStack,
)
from gpulayer.protocol.workers import (
    CreateJoinToken,
    DrainWorker,
    GetHealth,
    Health,
    JoinToken,
    ListWorkers,
    StartLocalWorkers,
    WorkerList,
    WorkerStatus,
)

__all__ = [
    "MARKS",
    "PROTOCOL_VERSION",
    "AcquireNext",
    "AcquireTask",
    "AppendLogs",
    "AttemptRef",
    "CancelJob",
    "CreateJoinToken",
    "Device",
    "Digest",
    "Done",
    "DrainWorker",
    "Event",
    "EventPage",
    "Failure",
    "FailureReason",
    "FinishTask",
    "Frame",
    "GetHealth",
    "GetJob",
    "Health",
    "Heartbeat",
    "HeartbeatReply",
    "InputFile",
    "JobId",
    "JobList",
    "JobStatus",
    "JoinToken",
    "LeaveWorker",
    "ListJobs",
    "ListWorkers",
    "LogChunk",
    "LogPage",
    "Message",
    "OutputFile",
    "PublishRendezvous",
    "RankError",
    "RankOutcome",
    "ReadEvents",
    "ReadLogs",
    "ReadRendezvous",
    "RegisterWorker",
    "Registered",
    "Rendezvous",
    "ReportFailure",
    "StartLocalWorkers",
    "StartTask",
    "StopOrder",
    "StopReason",
    "Stream",
    "SubmitJob",
    "TaskAssignment",
    "TaskFinished",
    "TaskId",
    "TaskMessage",
    "TaskStatus",
    "ThreadStack",
    "WorkerId",
    "WorkerList",
    "WorkerOrders",
    "WorkerStatus",
    "works_with",
]
