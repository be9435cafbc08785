"""How attempts and jobs end: failures, cancels, lost workers, retries. Each function is part of one transaction.

The rule for a job is in `settle_job`; all that ends an attempt comes through `end_attempt`, which frees its devices, and
whoever ends one calls `place_queue` last.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from gpulayer.control.store import attempts, changes, jobs, logs
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.rows import AttemptRow, JobRow, WorkerRow
from gpulayer.protocol import Failure, JobId, StopReason
from gpulayer.states import AttemptState, JobState, is_legal

_LIVE_PATH = (AttemptState.PLACED, AttemptState.ACKNOWLEDGED, AttemptState.RUNNING)


def confirm_attempt(connection: StoreConnection, now: float, row: AttemptRow) -> None:
    """The worker knows the assignment."""
    if row.state == AttemptState.PLACED.value:
        attempts.move_attempt(connection, row, AttemptState.ACKNOWLEDGED, confirmed_at=now)
        jobs.change_job(connection, row.job_id)


def start_attempt(connection: StoreConnection, now: float, row: AttemptRow) -> AttemptRow:
    """The attempt's process runs; the first of a job's makes the job run. Returns the row as it is then."""
    # The word that the process runs may overtake the acquire that names the assignment as received.
    if row.state == AttemptState.PLACED.value:
        row = attempts.move_attempt(connection, row, AttemptState.ACKNOWLEDGED, confirmed_at=now)
    if row.state == AttemptState.ACKNOWLEDGED.value:
        row = attempts.move_attempt(connection, row, AttemptState.RUNNING, started_at=now)
        jobs.run_job(connection, now, row.job_id, of_attempt=row.attempt)
    return row


def end_attempt(connection: StoreConnection, now: float, row: AttemptRow, reaches: AttemptState, **values: Any) -> AttemptRow:
    """Take a live attempt to its end over legal moves only, and free its devices. Returns the row as it is then."""
    while not is_legal(AttemptState(row.state), reaches):
        following = _LIVE_PATH[_LIVE_PATH.index(AttemptState(row.state)) + 1]
        stamp = "started_at" if following is AttemptState.RUNNING else "confirmed_at"
        row = attempts.move_attempt(connection, row, following, **{stamp: now})
        if following is AttemptState.RUNNING:
            jobs.run_job(connection, now, row.job_id, of_attempt=row.attempt)
    return attempts.move_attempt(connection, row, reaches, ended_at=now, **values)


def fail_job(connection: StoreConnection, now: float, row: AttemptRow, failure: Failure) -> None:
    """An attempt failed: keep the first failure, and stop the attempts on the other nodes."""
    job = jobs.job_row(connection, row.job_id)
    if job.failure is None:
        jobs.change_job(connection, job.id, failure=msgspec.json.encode(failure))
    siblings = [other for other in attempts.attempts_of_job(connection, job.id, row.attempt) if other.node != row.node]
    stop_attempts(connection, now, siblings, "collateral")


def stop_attempts(connection: StoreConnection, now: float, rows: Iterable[AttemptRow], reason: StopReason) -> None:
    """Order the live ones to stop; one that its worker has not confirmed ends at once."""
    for row in rows:
        state = AttemptState(row.state)
        if state.is_terminal:
            continue
        attempts.order_stop(connection, row, reason)
        if state is AttemptState.PLACED:
            end_attempt(connection, now, row, AttemptState.CANCELLED)


def lose_attempts(connection: StoreConnection, now: float, worker: WorkerRow, why: str) -> None:
    """Every attempt that a worker holds is lost; `why` ends the sentence "worker 'a' …"."""
    rows = attempts.live_attempts_of_worker(connection, worker.id)
    for row in rows:
        end_attempt(connection, now, row, AttemptState.LOST)
        fail_job(
            connection,
            now,
            row,
            Failure(reason="lost", message=f"worker {worker.name!r} {why}", node=row.node, worker=worker.name),
        )
    for job_id in dict.fromkeys(JobId(row.job_id) for row in rows):
        settle_job(connection, now, job_id)


def cancel_job(connection: StoreConnection, now: float, job: JobRow, *, force: bool) -> None:
    """Ask a job to stop: at once where nothing of it is known to run, else by orders to its workers."""
    state = JobState(job.state)
    reason: StopReason = "kill" if force else "cancel"
    if state.is_terminal or job.stop in ("kill", reason):
        return
    jobs.change_job(connection, job.id, stop=reason)
    rows = attempts.attempts_of_job(connection, job.id, job.attempt)
    stop_attempts(connection, now, rows, reason)
    if rows:
        settle_job(connection, now, job.id)
    else:
        _end_job(connection, now, jobs.job_row(connection, job.id), JobState.CANCELLED)


def settle_job(connection: StoreConnection, now: float, job_id: JobId, ended: AttemptRow | None = None) -> None:
    """Once all tasks of the present attempt have ended, end the job or take it back to the queue.

    `ended` is the attempt that has just ended: of a job with one node there is no other to read.
    """
    job = jobs.job_row(connection, job_id)
    if ended is not None and job.nodes == 1 and ended.attempt == job.attempt:
        rows = [ended]
    else:
        rows = attempts.attempts_of_job(connection, job_id, job.attempt)
    states = [AttemptState(row.state) for row in rows]
    if JobState(job.state).is_terminal or not states or not all(state.is_terminal for state in states):
        jobs.change_job(connection, job_id)  # one of its tasks did end, which readers of the record want to see
    elif all(state is AttemptState.SUCCEEDED for state in states):
        _end_job(connection, now, job, JobState.SUCCEEDED)
    elif job.stop is not None:
        _end_job(connection, now, job, JobState.CANCELLED)
    elif not _is_lasting(job) and attempts.count_confirmed(connection, job_id) <= jobs.spec_of(job).retries:
        # An attempt that no worker ever took up costs no retry: nothing of the user's has run.
        again = {"attempt": job.attempt + 1, "failure": None, "started_at": None, "progress": None}
        jobs.move_job(connection, job, JobState.QUEUED, **again)
    else:
        _end_job(connection, now, job, JobState.FAILED)


def utc_text(seconds: float) -> str:
    """A time as texts for people show it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _is_lasting(job: JobRow) -> bool:
    """Whether the job's failure would only be met again."""
    failure = jobs.failure_of(job)
    return failure is not None and failure.lasting


def _end_job(connection: StoreConnection, now: float, job: JobRow, reaches: JobState) -> None:
    jobs.move_job(connection, job, reaches, ended_at=now)
    changes.emit(connection, logs.logs_topic(job.id))  # readers held for more output learn that there is none
