"""The states of jobs and of task attempts, every legal move, and what guards it.

This table is the specification: the store applies a change only where the row still has the state that the move leaves
(`UPDATE … WHERE state = … AND attempt = …`), and the picture in the docs is drawn from it (`docs/jobs.md`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple


class JobState(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"
    """Accepted and stored; some of its tasks may be placed already."""
    RUNNING = "running"
    """At least one of its tasks has a running process."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


WaitingReason = Literal["starting", "no_worker", "draining", "requires", "apart", "too_small", "too_few", "busy"]
"""Why a job is queued. It is placed, and its ranks are not up yet; there is no worker; none takes work; none provides what it
requires; those that could hold it can't reach each other; none has that many devices; too few have; others hold what it needs."""


class AttemptState(StrEnum):
    """Where one try at a task stands."""

    PLACED = "placed"
    """Devices are reserved on a worker; the worker has not confirmed that it knows."""
    ACKNOWLEDGED = "acknowledged"
    """The worker's next acquire named the assignment as received."""
    RUNNING = "running"
    """The process runs."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """Stopped on order: the job was cancelled, or a sibling failed first (collateral)."""
    LOST = "lost"
    """The worker's lease ran out; every later write of this attempt is refused."""

    @property
    def is_terminal(self) -> bool:
        return self in (AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.CANCELLED, AttemptState.LOST)


class Move(NamedTuple):
    """One legal change of state."""

    leaves: StrEnum
    reaches: StrEnum
    when: str
    guard: str


_J, _A = JobState, AttemptState

JOB_MOVES: tuple[Move, ...] = (
    Move(_J.QUEUED, _J.RUNNING, "the first of its tasks starts", "the attempt is the job's current one"),
    Move(_J.QUEUED, _J.CANCELLED, "cancelled, and no attempt of it is alive", "cancel was requested"),
    Move(_J.QUEUED, _J.FAILED, "an attempt ended before its process ran", "no retry is left"),
    Move(
        _J.QUEUED,
        _J.QUEUED,
        "an attempt ended before its process ran",
        "a retry is left, or no worker had taken it up: the attempt number grows by one",
    ),
    Move(_J.RUNNING, _J.SUCCEEDED, "all its tasks succeeded", "the attempt is the job's current one"),
    Move(_J.RUNNING, _J.FAILED, "a task failed or was lost, and all its tasks have ended", "no retry is left"),
    Move(_J.RUNNING, _J.CANCELLED, "cancelled, and all its tasks have ended", "cancel was requested"),
    Move(
        _J.RUNNING, _J.QUEUED, "a task failed or was lost, and all its tasks have ended", "a retry is left: the attempt number grows by one"
    ),
)

ATTEMPT_MOVES: tuple[Move, ...] = (
    Move(_A.PLACED, _A.ACKNOWLEDGED, "the worker names the assignment as received", "same worker and boot"),
    Move(_A.PLACED, _A.CANCELLED, "stopped before the worker confirmed it", "a stop was ordered"),
    Move(_A.PLACED, _A.LOST, "the worker's lease ran out", "the lease's counter stood still for a whole lease"),
    Move(_A.ACKNOWLEDGED, _A.RUNNING, "the worker says that the process runs", "same worker, boot and attempt"),
    Move(_A.ACKNOWLEDGED, _A.FAILED, "it could not be started", "same worker, boot and attempt"),
    Move(_A.ACKNOWLEDGED, _A.CANCELLED, "stopped before the process ran", "same worker, boot and attempt"),
    Move(_A.ACKNOWLEDGED, _A.LOST, "the worker's lease ran out", "the lease's counter stood still for a whole lease"),
    Move(_A.RUNNING, _A.SUCCEEDED, "every rank of it succeeded", "same worker, boot and attempt"),
    Move(_A.RUNNING, _A.FAILED, "a rank of it failed", "same worker, boot and attempt"),
    Move(_A.RUNNING, _A.CANCELLED, "it was stopped on order", "same worker, boot and attempt"),
    Move(_A.RUNNING, _A.LOST, "the worker's lease ran out", "the lease's counter stood still for a whole lease"),
)


def is_legal(leaves: StrEnum, reaches: StrEnum) -> bool:
    """Whether the tables above hold a move between these two states of one kind."""
    moves = JOB_MOVES if isinstance(leaves, JobState) else ATTEMPT_MOVES
    return any(move.leaves is leaves and move.reaches is reaches for move in moves)
