from __future__ import annotations

import asyncio

import pytest
from support.control import run

from gpulayer.control.waiters import Waiters
from gpulayer.errors import Interrupted


def test_only_those_who_watch_the_topic_are_woken():
    async def check():
        waiters = Waiters()
        with waiters.watch("job/1") as concerned, waiters.watch("job/2") as unconcerned:
            waiters.signal("job/1")
            assert await concerned.changed(5)
            assert not await unconcerned.changed(0.01)

    run(check())


def test_a_signal_between_the_look_and_the_wait_is_not_lost():
    async def check():
        waiters = Waiters()
        with waiters.watch("job/1") as watch:
            waiters.signal("job/1")
            assert await watch.changed(5)
            assert not await watch.changed(0.01)

    run(check())


def test_a_hold_asks_again_only_after_a_signal():
    async def check():
        waiters = Waiters()
        asked = 0
        looked = asyncio.Event()

        async def look():
            nonlocal asked
            asked += 1
            looked.set()
            return asked, asked == 3

        hold = asyncio.create_task(waiters.hold(["job/1"], wait=20, check=look))
        for expected in (1, 2):
            await looked.wait()
            looked.clear()
            assert asked == expected
            waiters.signal("job/2")
            waiters.signal("job/1")
        assert await hold == 3

    run(check())


def test_a_hold_whose_time_is_over_returns_the_last_answer():
    async def check():
        waiters = Waiters()

        async def look():
            return "nothing yet", False

        assert await waiters.hold(["job/1"], wait=0.01, check=look) == "nothing yet"
        assert await waiters.hold(["job/1"], wait=-5, check=look) == "nothing yet"

    run(check())


def test_a_cancelled_wait_leaves_nothing_behind():
    async def check():
        waiters = Waiters()

        async def look():
            return None, False

        hold = asyncio.create_task(waiters.hold(["job/1", "logs/1"], wait=20, check=look))
        while not len(waiters):
            await asyncio.sleep(0)
        hold.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hold
        assert len(waiters) == 0
        waiters.signal("job/1")

    run(check())


def test_a_watch_without_topics_sees_every_topic():
    async def check():
        waiters = Waiters()
        with waiters.watch() as everything:
            waiters.signal("anything")
            assert await everything.changed(5)

    run(check())


def test_closing_ends_every_wait_and_refuses_another():
    async def check():
        waiters = Waiters()

        async def look():
            return None, False

        hold = asyncio.create_task(waiters.hold(["job/1"], wait=20, check=look))
        while not len(waiters):
            await asyncio.sleep(0)
        waiters.close()
        with pytest.raises(Interrupted):
            await hold
        with pytest.raises(Interrupted), waiters.watch("job/1"):
            pass

    run(check())
