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
        self.book.begin()
        self.book.take([Lease(worker_id="w", boot=self.boot, renewals=self.renewals, last_seen_at=self.last_seen_at)])
        return self.book.over({"w"} if self.busy else ())

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


def leases(*worker_ids, renewals=1):
    return [Lease(worker_id=worker_id, boot=f"boot-{worker_id}", renewals=renewals, last_seen_at=0.0) for worker_id in worker_ids]


def look(book, *, taken=(), busy=()):
    book.begin()
    book.take(taken)
    return [lease.worker_id for lease in book.over(busy)]


def test_only_who_spoke_has_to_be_taken():
    clock = FakeClock()
    book = LeaseBook(clock)
    assert look(book, taken=leases("a", "b", "c")) == []
    for renewals in range(2, 2 + int(IDLE_LEASE_SECONDS / LEASE_CHECK_SECONDS)):
        clock.advance(LEASE_CHECK_SECONDS)
        assert look(book, taken=leases("b", renewals=renewals)) == []
    clock.advance(LEASE_CHECK_SECONDS)
    assert look(book) == ["a", "c"]
    book.begin()
    book.forget(["a"])
    book.keep_only({"b"})
    assert book.over(()) == []


def test_a_busy_worker_behind_idle_ones_is_judged_by_its_own_lease():
    clock = FakeClock()
    book = LeaseBook(clock)
    for worker_id in "abc":
        book.hear(f"boot-{worker_id}")
    look(book, taken=leases("a", "b", "c"))
    for _ in range(int(BUSY_LEASE_SECONDS / LEASE_CHECK_SECONDS)):
        clock.advance(LEASE_CHECK_SECONDS)
        assert look(book, busy=["c"]) == []
    clock.advance(LEASE_CHECK_SECONDS)
    assert look(book, busy=["c"]) == ["c"]


def test_a_look_that_did_not_end_has_the_next_take_everything():
    book = LeaseBook(FakeClock())
    assert not book.is_current
    look(book, taken=leases("a"))
    assert book.is_current
    book.begin()
    assert not book.is_current


def test_a_boot_that_is_watched_no_more_is_not_heard_any_more_but_one_that_spoke_meanwhile_is():
    book = LeaseBook(FakeClock())
    for boot in ("boot-a", "refused"):
        book.hear(boot)
    book.begin()
    book.hear("late")
    book.take(leases("a"))
    book.over(())
    assert book.heard() == {"boot-a", "late"}
