"""Jobs that end with their client: renewed they go on, unheard they are cancelled, and no clock of another machine decides."""

from __future__ import annotations

import pytest
from support.control import USER, FakeClock, run

from gpulayer.control import ControlPlane
from gpulayer.control.client_leases import ClientLeaseBook
from gpulayer.control.leases import LEASE_CHECK_SECONDS
from gpulayer.control.store.client_leases import ClientLease
from gpulayer.errors import InvalidSpec, UnknownJob
from gpulayer.protocol import SubmitJob
from gpulayer.spec import CommandJob
from gpulayer.states import JobState


def lease(renewals=0, seconds=10.0):
    return ClientLease(job_id="j1", seconds=seconds, renewals=renewals, has_ended=False)


def test_an_unheard_client_is_gone_after_its_lease():
    clock = FakeClock()
    book = ClientLeaseBook(clock)
    assert book.over([lease()]) == []
    passed = 0.0
    while not book.over([lease()]):
        clock.advance(LEASE_CHECK_SECONDS)
        passed += LEASE_CHECK_SECONDS
        assert passed < 60
    assert 10 <= passed <= 10 + LEASE_CHECK_SECONDS


def test_one_that_is_heard_is_never_gone():
    clock = FakeClock()
    book = ClientLeaseBook(clock)
    for number in range(100):
        clock.advance(LEASE_CHECK_SECONDS)
        assert book.over([lease(renewals=number)]) == []


def test_a_control_plane_that_stood_still_itself_cancels_nothing_at_once():
    clock = FakeClock()
    book = ClientLeaseBook(clock)
    book.over([lease()])
    clock.advance(10_000.0)
    assert book.over([lease()]) == []


def test_a_new_control_plane_gives_every_lease_its_whole_length():
    clock = FakeClock()
    first, second = ClientLeaseBook(clock), ClientLeaseBook(clock)
    first.over([lease()])
    for _ in range(4):
        clock.advance(LEASE_CHECK_SECONDS)
        first.over([lease()])
    second.over([lease()])
    clock.advance(LEASE_CHECK_SECONDS)
    assert first.over([lease()]) == ["j1"]
    assert second.over([lease()]) == []


def test_a_bound_job_is_cancelled_and_a_free_one_goes_on(tmp_path):
    async def test():
        clock = FakeClock()
        plane = await ControlPlane.open(tmp_path / "home", clock=clock)
        try:
            free = await plane.submit(SubmitJob(spec=CommandJob(("true",)), idempotency_key="a"), USER)
            bound = await plane.submit(SubmitJob(spec=CommandJob(("true",)), idempotency_key="b", lease_seconds=10), USER)
            await plane.check_client_leases()
            for _ in range(10):
                clock.advance(LEASE_CHECK_SECONDS)
                assert not (await plane.renew_lease(job_id=bound.job_id)).ended
                await plane.check_client_leases()
            assert (await plane.wait_job(job_id=bound.job_id)).state is JobState.QUEUED
            for _ in range(6):
                clock.advance(LEASE_CHECK_SECONDS)
                await plane.check_client_leases()
            assert (await plane.wait_job(job_id=bound.job_id)).state is JobState.CANCELLED
            assert (await plane.wait_job(job_id=free.job_id)).state is JobState.QUEUED
            assert (await plane.renew_lease(job_id=bound.job_id)).ended
            assert (await plane.renew_lease(job_id=free.job_id)).ended  # nobody has to renew what was never bound
            with pytest.raises(UnknownJob):
                await plane.renew_lease(job_id="jnothing")
        finally:
            await plane.close()

    run(test())


@pytest.mark.parametrize("seconds", [0, -1, 1, 1e9, float("nan")])
def test_a_lease_of_no_use_is_refused(seconds, tmp_path):
    async def test():
        plane = await ControlPlane.open(tmp_path / "home", clock=FakeClock())
        try:
            with pytest.raises(InvalidSpec, match="lease"):
                await plane.submit(SubmitJob(spec=CommandJob(("true",)), idempotency_key="b", lease_seconds=seconds), USER)
        finally:
            await plane.close()

    run(test())
