"""What a worker says of an attempt: which refusals end it and which don't."""

from __future__ import annotations

import threading

import pytest

from gpulayer.errors import AttemptLost, InvalidSpec, ServerUnreachable
from gpulayer.protocol import Failure, LogChunk, MetricBatch
from gpulayer.worker.attempt_calls import REPORT_SECONDS, AttemptCalls
from gpulayer.worker.server_link import ServerLink

FIELDS = {"task_id": "j1.0", "attempt": 2, "worker_id": "w1", "boot": "b1"}


class Transport:
    """Keeps what is said, and refuses with what a test has put there."""

    description = "a list"

    def __init__(self):
        self.said = []
        self.errors = []

    def call(self, call, request, *, timeout=None):
        self.said.append((call.name, request, timeout))
        if self.errors:
            raise self.errors.pop(0)


@pytest.fixture
def transport():
    return Transport()


@pytest.fixture
def calls(transport):
    return AttemptCalls(ServerLink(transport), FIELDS, threading.Event())


def chunk():
    return LogChunk(attempt=2, node=0, rank=0, stream="stdout", offset=0, first_line=0, time=0.0, data=b"x")


def test_each_names_the_attempt_and_is_tried_until_it_is_answered(transport, calls):
    transport.errors = [ServerUnreachable("away")]
    calls.append_metrics(MetricBatch(attempt=2, node=0, number=1, points=()))
    calls.start()
    calls.append_logs((chunk(),))
    assert [name for name, _, _ in transport.said] == ["append_metrics", "append_metrics", "start_task", "append_logs"]
    for _, request, timeout in transport.said:
        assert {name: getattr(request, name) for name in FIELDS} == FIELDS
        assert timeout is None


def test_the_last_output_may_be_refused_but_not_for_a_lost_attempt(transport, calls):
    calls.append_rest(())
    assert transport.said == []
    transport.errors = [InvalidSpec("no"), AttemptLost("over")]
    calls.append_rest((chunk(),))
    with pytest.raises(AttemptLost):
        calls.append_rest((chunk(),))


def test_a_failure_is_reported_once_and_not_for_long(transport, calls):
    transport.errors = [ServerUnreachable("away")]
    calls.report_failure(Failure(reason="rank", message="it failed"))
    ((name, request, timeout),) = transport.said
    assert (name, request.failure.message, timeout) == ("report_failure", "it failed", REPORT_SECONDS)
