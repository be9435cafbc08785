from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.client import health

from gpulayer.calls import CALLS
from gpulayer.client.in_process import InProcessTransport
from gpulayer.errors import Interrupted, ServerUnreachable, UnknownJob, Unsupported
from gpulayer.protocol import GetHealth, GetJob


class Answers:
    """Stands for a control plane: health is answered, a job is waited for until it is released, for ever."""

    def __init__(self) -> None:
        self.waiting = threading.Event()
        self.cancelled = threading.Event()

    async def handle(self, call, request, caller):
        if isinstance(request, GetHealth):
            return health(home_id=caller)
        if not request.wait:
            raise UnknownJob("No job has this id.", asked=request.job_id)
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    def artifact_path(self, sha256):
        return None


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.fixture
def answers():
    return Answers()


@pytest.fixture
def transport(loop, answers):
    return InProcessTransport(answers, loop, "me", "embedded")


def test_answers_and_errors_come_back_as_they_are(transport):
    assert transport.call(CALLS["get_health"], GetHealth()).home_id == "me"
    with pytest.raises(UnknownJob):
        transport.call(CALLS["wait_job"], GetJob(job_id="j1"))


def test_many_threads_may_call_at_once(transport):
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(lambda _: transport.call(CALLS["get_health"], GetHealth()), range(50)))) == 50


def test_close_ends_held_calls_and_cancels_their_work(transport, answers):
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(transport.call, CALLS["wait_job"], GetJob(job_id="j1", wait=30))
        assert answers.waiting.wait(10)
        transport.close()
        with pytest.raises(Interrupted):
            held.result(10)
    assert answers.cancelled.wait(10)
    with pytest.raises(Interrupted):
        transport.call(CALLS["get_health"], GetHealth())


@pytest.mark.parametrize("begun", [True, False])
def test_close_wakes_the_caller_of_a_loop_that_has_stopped(begun):
    loop, answers = asyncio.new_event_loop(), Answers()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    transport = InProcessTransport(answers, loop, "me", "embedded")
    with ThreadPoolExecutor(1) as pool:
        if begun:
            held = pool.submit(transport.call, CALLS["wait_job"], GetJob(job_id="j1", wait=30))
            assert answers.waiting.wait(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        if not begun:
            scheduled = threading.Event()
            schedule, loop.call_soon_threadsafe = loop.call_soon_threadsafe, lambda *work: (schedule(*work), scheduled.set())
            held = pool.submit(transport.call, CALLS["wait_job"], GetJob(job_id="j1", wait=30))
            assert scheduled.wait(10)
        try:
            transport.close()
            with pytest.raises(Interrupted):
                held.result(10)
        finally:
            # What was said to the loop is done when it goes on, and nothing else is.
            for _ in range(3):
                loop.call_soon(loop.stop)
                loop.run_forever()
            loop.close()
    assert (answers.waiting.is_set(), answers.cancelled.is_set()) == (begun, begun)


def test_a_closed_loop_is_no_fault_of_close(transport, answers, loop, monkeypatch):
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(transport.call, CALLS["wait_job"], GetJob(job_id="j1", wait=30))
        assert answers.waiting.wait(10)
        with transport._lock:  # its work may begin before it is noted
            (ask,) = transport._held
        with monkeypatch.context() as patch:
            patch.setattr(loop, "call_soon_threadsafe", _refuse)
            transport.close()
            with pytest.raises(Interrupted):
                held.result(10)
        loop.call_soon_threadsafe(ask._cancel)
    assert answers.cancelled.wait(10)


def _refuse(*_):
    raise RuntimeError("Event loop is closed")


def test_a_deadline_ends_the_call_and_its_work(transport, answers):
    with pytest.raises(ServerUnreachable):
        transport.call(CALLS["wait_job"], GetJob(job_id="j1", wait=30), timeout=0.01)
    assert answers.cancelled.wait(10)


def test_a_call_from_the_loop_itself_is_refused_not_hung(transport, loop):
    async def call():
        return transport.call(CALLS["get_health"], GetHealth())

    with pytest.raises(Unsupported):
        asyncio.run_coroutine_threadsafe(call(), loop).result(10)


async def _in_a_running_loop(transport):
    return transport.call(CALLS["get_health"], GetHealth())


def test_it_works_where_the_calling_thread_runs_a_loop_of_its_own(transport):
    assert asyncio.run(_in_a_running_loop(transport)).home_id == "me"
