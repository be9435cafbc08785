from __future__ import annotations

import pytest
from support.control import FakeClock

from gpulayer.control.leases import LEASE_CHECK_SECONDS, Lease, LeaseBook
from gpulayer.settings import BUSY_LEASE_SECONDS, IDLE_LEASE_SECONDS, ORPHAN_LIMIT_SECONDS


class Home:
    """One worker as the store shows it, and the book that watches it."""

    def __init__(self, *, busy=True, heard=True, **options):
        self.clock = FakeClock()
        self.book = LeaseBook(self.clock, **options)
        self.renewals, self.busy, self.boot = 1, busy, "boot-1"
        self.last_seen_at = self.clock.now()
        if heard:
            self.book.hear(self.boot)
        assert self.look() == []

    def look(self):
        return self.book.lost(
            [Lease(worker_id="w", boot=self.boot, renewals=self.renewals, busy=self.busy, last_seen_at=self.last_seen_at)]
        )

    def speak(self):
        self.renewals += 1
        self.last_seen_at = self.clock.now()

    def silence(self):
        """Seconds of watching until the worker is lost, up to two orphan limits."""
        passed = 0.0
        while passed < 2 * ORPHAN_LIMIT_SECONDS:
            self.clock.advance(LEASE_CHECK_SECONDS)
            passed += LEASE_CHECK_SECONDS
            if self.look():
                return passed
        return None


@pytest.mark.parametrize(("busy", "lease"), [(True, BUSY_LEASE_SECONDS), (False, IDLE_LEASE_SECONDS)])
def test_a_silent_worker_is_lost_after_its_lease(busy, lease):
    assert lease <= Home(busy=busy).silence() <= lease + LEASE_CHECK_SECONDS


def test_a_worker_that_speaks_is_never_lost():
    home = Home()
    for _ in range(1000):
        home.clock.advance(LEASE_CHECK_SECONDS)
        home.speak()
        assert home.look() == []


def test_the_wall_clock_judges_nobody():
    home = Home()
    home.clock.wall += 10 * ORPHAN_LIMIT_SECONDS
    assert home.look() == []
    home.clock.wall -= 20 * ORPHAN_LIMIT_SECONDS
    assert home.look() == []
    assert home.silence() >= BUSY_LEASE_SECONDS


def test_a_stop_of_the_control_plane_itself_loses_nobody():
    home = Home()
    home.clock.advance(600)  # SIGSTOP, or a closed lid: the renewals lie unread in its sockets
    assert home.look() == []
    home.speak()
    assert home.look() == []


def test_a_worker_that_was_never_heard_here_is_believed_for_the_orphan_limit():
    home = Home(heard=False)
    assert home.silence() == pytest.approx(ORPHAN_LIMIT_SECONDS, abs=LEASE_CHECK_SECONDS)


def test_silence_from_before_counts_only_with_a_lease_of_watching():
    home = Home(heard=False)
    home.last_seen_at -= 2 * ORPHAN_LIMIT_SECONDS
    assert home.look() == []
    assert IDLE_LEASE_SECONDS <= home.silence() <= IDLE_LEASE_SECONDS + LEASE_CHECK_SECONDS


def test_a_control_plane_that_judges_the_silent_only_waits_for_the_orphan_limit():
    assert Home(judge_silent_only=True).silence() == pytest.approx(ORPHAN_LIMIT_SECONDS, abs=LEASE_CHECK_SECONDS)


def test_another_boot_starts_a_lease_of_its_own():
    home = Home()
    home.clock.advance(BUSY_LEASE_SECONDS - LEASE_CHECK_SECONDS)
    home.look()
    home.boot = "boot-2"
    home.speak()
    assert home.look() == []
    assert home.silence() == pytest.approx(ORPHAN_LIMIT_SECONDS, abs=LEASE_CHECK_SECONDS)  # that boot was not heard here


def test_an_idle_worker_is_judged_by_whoever_watches():
    home = Home(busy=False, heard=False)
    assert IDLE_LEASE_SECONDS <= home.silence() <= IDLE_LEASE_SECONDS + LEASE_CHECK_SECONDS
