"""A job that is bound to its kernel: the lease is renewed through whatever passes, until the job has ended."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from gpulayer_jupyter import kernel_lease

from gpulayer.errors import GPUlayerError, ServerUnreachable, UnknownJob, Unsupported
from gpulayer.protocol import CancelJob, LeaseRenewed


class Job:
    """Answers each renewal as the test says, the last answer for good."""

    id = "j1"

    def __init__(self, *answers: LeaseRenewed | GPUlayerError) -> None:
        self.answers = list(answers)
        self.client = SimpleNamespace(call=self._call, call_patiently=self._renew)
        self.renewals = 0
        self.cancelled: list[Any] = []
        self.ended = threading.Event()

    def cancel(self, force: bool = False) -> None:
        self.cancelled.append(force)

    def _call(self, name: str, request: Any, timeout: float | None = None) -> LeaseRenewed:
        if isinstance(request, CancelJob):
            self.cancelled.append(request.job_id)
        if isinstance(self.answers[0], Unsupported):
            raise self.answers[0]
        return LeaseRenewed(ended=False)

    def _renew(self, name: str, request: Any) -> LeaseRenewed:
        self.renewals += 1
        answer = self.answers.pop(0)
        if not self.answers:
            self.ended.set()
        if isinstance(answer, GPUlayerError):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_lease, "RENEW_SECONDS", 0.001)
    monkeypatch.setattr(kernel_lease, "_bound", {})


def renewing(job: Job) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"gpulayer-lease-{job.id}"]


@pytest.mark.parametrize("last", [LeaseRenewed(ended=True), UnknownJob("There is none.")])
def test_a_server_that_is_long_away_does_not_end_the_renewing(last: LeaseRenewed | GPUlayerError) -> None:
    job = Job(LeaseRenewed(ended=False), ServerUnreachable("away"), ServerUnreachable("still away"), last)
    kernel_lease.keep_bound(job)
    assert job.ended.wait(20)
    for thread in renewing(job):
        thread.join(20)
    assert job.renewals == 4
    assert kernel_lease._bound == {}
    assert job.cancelled == []


def test_a_control_plane_without_leases_gets_no_job_that_outlives_the_kernel() -> None:
    job = Job(Unsupported("no such call"))
    with pytest.raises(Unsupported, match="--bind kernel needs"):
        kernel_lease.keep_bound(job)
    assert job.cancelled == [True]


def test_a_kernel_that_ends_in_order_cancels_what_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_lease, "RENEW_SECONDS", 0.05)
    job = Job(LeaseRenewed(ended=True))
    kernel_lease.keep_bound(job)
    kernel_lease._cancel_all()
    assert job.cancelled == ["j1"]
    for thread in renewing(job):
        thread.join(20)
