"""The line to the control plane: replaced when the server comes back elsewhere, and what a wait ends by."""

from __future__ import annotations

import threading

import pytest

from gpulayer.errors import AttemptLost, Interrupted, ServerUnreachable, TooManyCalls
from gpulayer.protocol import GetHealth
from gpulayer.worker.server_link import Retries, ServerLink


class Transport:
    """Answers with what it is given, or raises it."""

    token = None

    def __init__(self, description: str, *answers, url: str | None = None) -> None:
        self.description = description
        self.url = url
        self.answers = list(answers)
        self.closed = False

    def call(self, call, request, *, timeout=None):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


def _health(link: ServerLink):
    return link.call("get_health", GetHealth())


@pytest.mark.parametrize("error", [ServerUnreachable("away"), Interrupted("The control plane is closing.")])
def test_the_next_server_is_looked_for_when_one_is_gone(error: Exception) -> None:
    first, second = Transport("first", error), Transport("second", "well")
    link = ServerLink(first, lambda: second)
    with pytest.raises(ServerUnreachable):
        _health(link)
    assert first.closed
    assert _health(link) == "well"
    assert link.transport is second


def test_a_transport_to_the_same_address_is_not_replaced() -> None:
    first = Transport("first", ServerUnreachable("away"), "well", url="http://127.0.0.1:8888/")
    same, elsewhere = Transport("same", "well", url=first.url), Transport("elsewhere", "well", url="http://127.0.0.1:8889/")
    found = [same, elsewhere]
    link = ServerLink(first, lambda: found.pop(0))
    with pytest.raises(ServerUnreachable):
        _health(link)
    # Calls of other threads may be held on it.
    assert not first.closed
    assert same.closed
    assert link.transport is first
    first.answers = [ServerUnreachable("away")]
    with pytest.raises(ServerUnreachable):
        _health(link)
    assert first.closed
    assert link.transport is elsewhere


def test_a_busy_server_is_asked_again_after_the_pause_it_names() -> None:
    link = ServerLink(Transport("one", TooManyCalls("busy"), "well"))
    assert link.patiently(lambda: _health(link), threading.Event()) == "well"
    assert link.silent_seconds() == 0
    retries = Retries()
    told = TooManyCalls("busy", details={"retry_after_seconds": 7.0})
    assert [retries.next_pause(TooManyCalls("busy")), retries.next_pause(told), retries.next_pause(TooManyCalls("busy"))] == [0.1, 7.0, 0.4]


def test_silence_is_measured_from_the_last_answer() -> None:
    now = [100.0]
    transport = Transport("one", "well", ServerUnreachable("away"), AttemptLost("over"))
    link = ServerLink(transport, clock=lambda: now[0])
    _health(link)
    now[0] = 130.0
    assert link.silent_seconds() == 0
    with pytest.raises(ServerUnreachable):
        _health(link)
    now[0] = 140.0
    assert link.silent_seconds() == 40.0
    with pytest.raises(AttemptLost):
        _health(link)
    assert link.silent_seconds() == 0  # a refusal is an answer


def test_a_patient_call_is_repeated_until_it_is_answered() -> None:
    link = ServerLink(Transport("one", ServerUnreachable("away"), ServerUnreachable("away"), "well"))
    assert link.patiently(lambda: _health(link), threading.Event()) == "well"


def test_each_reason_to_wait_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    link = ServerLink(Transport("one", ServerUnreachable("away"), ServerUnreachable("away"), ServerUnreachable("busy"), "well"))
    with caplog.at_level("INFO", logger="gpulayer.worker.server_link"):
        link.patiently(lambda: _health(link), threading.Event())
    assert [text for text in caplog.messages if text.startswith("trying again")] == [
        "trying again until it works: away",
        "trying again until it works: busy",
    ]


def test_a_patient_call_ends_when_it_is_given_up_or_the_link_closes() -> None:
    for end in ("give up", "close"):
        link = ServerLink(Transport("one", ServerUnreachable("away")))
        give_up, tried, ended = threading.Event(), threading.Event(), threading.Event()

        def ask(link=link, tried=tried):
            tried.set()
            return _health(link)

        def wait(link=link, give_up=give_up, ended=ended, ask=ask) -> None:
            with pytest.raises(Interrupted):
                link.patiently(ask, give_up)
            ended.set()

        thread = threading.Thread(target=wait)
        thread.start()
        assert tried.wait(10)
        if end == "close":
            link.close()
        else:
            give_up.set()
            link.wake()
        assert ended.wait(10)
        thread.join()


def test_the_first_answer_wakes_who_waits_for_the_server() -> None:
    link = ServerLink(Transport("one", ServerUnreachable("away"), "well"))
    with pytest.raises(ServerUnreachable):
        _health(link)
    woken = threading.Event()

    def wait() -> None:
        link.wait_for_server(60, threading.Event())
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    while not woken.wait(0.01):
        _health(link)
        link._reachable = False  # as another failing call would leave it, should the thread not have waited yet
    thread.join()
