from __future__ import annotations

import asyncio

import pytest
from support.control import run

from gpulayer.control.waiters import Question, Waiters
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


def held_question(waiters, asked, *, first=(None, False), found=("late", True), key="k", answer=None, wait=20):
    async def look():
        asked.append("look")
        return found

    async def begin():
        asked.append("first")
        return first

    question = Question(key=key, ask=lambda _: answer)
    return asyncio.create_task(waiters.hold_question("job/1", question, wait=wait, first=begin, look=look))


async def until_watched(waiters, count=1):
    while len(waiters) < count:
        await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_a_held_question_is_answered_by_the_writer_and_sleeps_through_what_does_not_answer_it():
    async def check():
        waiters = Waiters()
        asked = []
        held = held_question(waiters, asked)
        await until_watched(waiters)
        answers = waiters.ask(None, ["job/1"])
        assert list(answers.values()) == [None]
        waiters.signal("job/1", answers=answers)
        await asyncio.sleep(0)
        assert not held.done()
        waiters.signal("job/1", answers=dict.fromkeys(answers, "news"))
        assert await held == "news"
        assert asked == ["first"]

    run(check())


def test_a_question_that_the_writer_was_not_asked_looks_again():
    async def check():
        waiters = Waiters()
        asked = []
        held = held_question(waiters, asked)
        await until_watched(waiters)
        waiters.signal("job/1")  # another process
        assert await held == "late"
        assert asked == ["first", "look"]

    run(check())


def test_a_question_whose_time_is_over_gets_what_is_there():
    async def check():
        waiters = Waiters()
        for wait, first in ((0.01, (None, False)), (-1, (None, False))):
            asked = []
            assert await held_question(waiters, asked, first=first, found=("now", False), wait=wait) == "now"
            assert asked == ["first", "look"]
        asked = []
        held = held_question(waiters, asked, first=("first", False), wait=0.05)
        assert await held == "first"  # nothing has changed since
        assert asked == ["first"]

    run(check())


def test_equal_questions_are_asked_once_and_a_faulty_one_wakes_who_holds_it(caplog):
    async def check():
        waiters = Waiters()
        calls = []

        def ask(_):
            calls.append(None)
            return "same"

        def faulty(_):
            raise ZeroDivisionError

        with waiters.watch("t", question=Question(key="k", ask=ask)) as one, waiters.watch("t", question=Question(key="k", ask=ask)) as two:
            assert waiters.ask(None, ["t"]) == {one: "same", two: "same"}
        assert len(calls) == 1
        with waiters.watch("t", question=Question(key="k", ask=faulty)) as watch:
            answers = waiters.ask(None, ["t"])
            assert answers == {}
            waiters.signal("t", answers=answers)
            assert await watch.changed(5)
        assert "could not be answered" in caplog.text

    run(check())
