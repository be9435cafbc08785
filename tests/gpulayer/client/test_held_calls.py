from __future__ import annotations

import pytest
from support.client import chunk, job_status

from gpulayer.client.held_calls import pause_after
from gpulayer.protocol import (
    AcquireTask,
    AttemptRef,
    Event,
    EventPage,
    GetJob,
    LogPage,
    ReadEvents,
    ReadLogs,
    ReadRendezvous,
    Rendezvous,
    StopOrder,
    WorkerOrders,
)
from gpulayer.states import JobState

ACQUIRE = AcquireTask(worker_id="w", boot="b", free=1, wait=30)
GET = GetJob(job_id="j", wait=30)
LOGS = ReadLogs(job_id="j", wait=30)
EVENTS = ReadEvents(wait=30)
MEET = ReadRendezvous(task_id="j.0", attempt=1, worker_id="w", boot="b", wait=30)


@pytest.mark.parametrize(
    ("request_", "answer", "expected"),
    [
        (ACQUIRE, WorkerOrders(), 0.5),
        (ACQUIRE, WorkerOrders(drain=True), 0.5),
        (ACQUIRE, WorkerOrders(stops=(StopOrder(task_id="j.0", attempt=1, reason="cancel"),)), 0.0),
        (GET, job_status(JobState.RUNNING), 0.25),
        (GET, job_status(JobState.SUCCEEDED), 0.0),
        (GetJob(job_id="j", wait=30, after_revision=1), job_status(revision=1), 0.25),
        (GetJob(job_id="j", wait=30, after_revision=1), job_status(revision=2), 0.0),
        (LOGS, LogPage(chunks=(), next=0, complete=False), 0.25),
        (LOGS, LogPage(chunks=(), next=0, complete=True), 0.0),
        (LOGS, LogPage(chunks=(chunk(b"x"),), next=1, complete=False), 0.0),
        (EVENTS, EventPage(events=(), next=0), 0.25),
        (EVENTS, EventPage(events=(Event(id=1, topic="workers"),), next=1), 0.0),
        (MEET, Rendezvous(), 0.25),
        (MEET, Rendezvous(address="127.0.0.1", port=1), 0.0),
    ],
)
def test_only_an_empty_answer_that_came_at_once_is_paced(request_, answer, expected):
    assert pause_after(request_, answer, 0.0) == expected
    assert pause_after(request_, answer, 0.2) == 0.0


def test_calls_that_are_not_held_are_never_paced():
    assert pause_after(GetJob(job_id="j"), job_status(), 0.0) == 0.0
    assert pause_after(AttemptRef(task_id="j.0", attempt=1), WorkerOrders(), 0.0) == 0.0


def test_a_short_wait_is_not_overrun():
    assert pause_after(GetJob(job_id="j", wait=0.125), job_status(), 0.0) == 0.125
