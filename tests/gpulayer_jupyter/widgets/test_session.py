"""What a widget is told: frames with their cursors, the module until it is acknowledged, and answers to what it asks."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from gpulayer_jupyter.widgets import session as session_module
from gpulayer_jupyter.widgets.module import LOADER_LIMIT_BYTES, ViewsModule, loader
from gpulayer_jupyter.widgets.session import JOB, LOGS, METRICS, JobSession
from support.job_views import page, status_of

from gpulayer.errors import UnknownJob
from gpulayer.protocol import (
    CancelJob,
    FollowLogs,
    JobFrame,
    LogsFrame,
    MetricPage,
    MetricsFrame,
    ReadStream,
    StreamFrames,
)
from gpulayer.states import JobState

MODULE = ViewsModule("d" * 64, "export function drawJob() {}", "")


class Server:
    """Answers one poll after another in the order in which they came, as the test lets it."""

    def __init__(self) -> None:
        self.asked: list[ReadStream] = []
        self.calls: list[Any] = []
        self.answers: list[Callable[[ReadStream], StreamFrames]] = []
        self._news = threading.Condition()

    def answer(self, make: Callable[[ReadStream], StreamFrames]) -> None:
        with self._news:
            self.answers.append(make)
            self._news.notify_all()

    def call_patiently(self, name: str, request: ReadStream) -> StreamFrames:
        assert name == "read_stream"
        with self._news:
            own = len(self.asked)
            self.asked.append(request)
            self._news.notify_all()
            self._news.wait_for(lambda: len(self.answers) > own)
        return self.answers[own](request)

    def call(self, name: str, request: Any, **options: Any) -> Any:
        self.calls.append(request)
        if isinstance(request, CancelJob):
            return status_of(cancel_requested=True)
        raise UnknownJob("There is no such job.", asked="j1", fix="Look again.")

    def wait_for(self, count: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: len(self.asked) >= count, timeout=20), self.asked

    def say_nothing(self) -> None:
        self.answer(lambda asked: StreamFrames(frames=()))

    def end(self) -> None:
        self.answer(lambda asked: StreamFrames(frames=tuple(ended(number) for number in asked.subscriptions)))


def ended(number: int) -> Any:
    if number == JOB:
        return JobFrame(id=number, status=status_of(JobState.SUCCEEDED, ended_at=1.0))
    if number == METRICS:
        return MetricsFrame(id=number, page=MetricPage(batches=(), next=0, complete=True, received=0, kept=0, lost=0))
    return LogsFrame(id=number, page=page(0, "last\n").__class__(chunks=(), next=9, complete=True))


class Browser:
    """Keeps what it is told, and waits for it."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self._news = threading.Condition()

    def __call__(self, message: dict[str, Any]) -> None:
        with self._news:
            self.heard.append(message)
            self._news.notify_all()

    def wait_for(self, kind: str, count: int = 1) -> list[dict[str, Any]]:
        def found() -> list[dict[str, Any]]:
            return [message for message in self.heard if message["type"] == kind]

        with self._news:
            assert self._news.wait_for(lambda: len(found()) >= count, timeout=20), (kind, self.heard)
            return found()


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(session_module, "_acknowledged", set())
    server, browser = Server(), Browser()
    job = SimpleNamespace(id="j1", client=server)
    opened = JobSession(job, browser, MODULE, blocked=True)
    yield SimpleNamespace(server=server, browser=browser, session=opened, job=job)
    opened.close()
    for _ in range(4):
        server.end()


def test_the_loader_is_small_and_no_text_of_a_job() -> None:
    assert 0 < len(loader().encode()) < LOADER_LIMIT_BYTES
    assert "drawJob" in loader()
    assert "innerHTML" not in loader()


def test_frames_come_with_the_cursor_that_they_were_asked_with(parts: Any) -> None:
    first = LogsFrame(id=LOGS, page=page(0, "a\n").__class__(chunks=page(0, "a\n").chunks, next=5, complete=False))
    parts.server.answer(lambda asked: StreamFrames(frames=(first,)))
    parts.server.end()
    logs = [message for message in parts.browser.wait_for("frame", 4) if message["frame"]["id"] == LOGS]
    assert [(message["after"], message["frame"]["page"]["next"]) for message in logs] == [(0, 5), (5, 9)]
    assert base64.b64decode(logs[0]["frame"]["page"]["chunks"][0]["data"]) == b"a\n"
    assert [set(asked.subscriptions) for asked in parts.server.asked] == [{JOB, LOGS, METRICS}] * 2
    assert parts.server.asked[1].subscriptions[LOGS].after == 5


def test_a_kernel_that_hears_serves_the_views_own_subscription_instead(parts: Any) -> None:
    parts.session.hear({"type": "subscribe", "id": 3, "to": {"kind": "logs", "job_id": "j1", "after": 7}})
    parts.session.hear({"type": "subscribe", "id": 4, "to": {"kind": "logs", "job_id": "j1", "rank": 2}})
    for _ in range(3):  # the polls for what was followed before count for nothing
        parts.server.end()
    frames = parts.browser.wait_for("frame", 4)
    assert {message["frame"]["id"] for message in frames} == {JOB, METRICS, 3, 4}
    assert parts.server.asked[-1].subscriptions[3] == FollowLogs(job_id="j1", after=7)  # type: ignore[arg-type]


def test_who_asks_for_what_was_followed_before_asks_no_more(parts: Any) -> None:
    parts.server.wait_for(1)
    for number in (3, 4):
        parts.session.hear({"type": "subscribe", "id": number, "to": {"kind": "logs", "job_id": "j1", "rank": number}})
        parts.server.wait_for(number - 1)
    for _ in range(3):
        parts.server.say_nothing()
    parts.server.wait_for(4)
    assert set(parts.server.asked[3].subscriptions) == {JOB, LOGS, METRICS, 3, 4}
    parts.server.end()
    parts.browser.wait_for("frame", 5)
    assert len(parts.server.asked) == 4


@pytest.mark.parametrize(
    "to", [{"kind": "logs", "job_id": "another"}, {"kind": "nonsense"}, None, {"kind": "logs", "job_id": "j1", "after": -1}]
)
def test_a_subscription_that_makes_no_sense_is_refused(to: Any, parts: Any) -> None:
    parts.session.hear({"type": "subscribe", "id": 3, "to": to})
    [refused] = [message for message in parts.browser.wait_for("frame") if message["frame"]["type"] == "failed"]
    assert refused["frame"]["id"] == 3
    assert refused["frame"]["error"]["status"] == 400 or refused["frame"]["error"]["status"] == 422


def test_the_module_is_repeated_until_a_page_has_it(parts: Any) -> None:
    sent = parts.browser.wait_for("module", 2)
    assert sent[0] == {"type": "module", "digest": MODULE.digest, "source": MODULE.source, "css": ""}
    parts.session.hear({"type": "have", "digest": MODULE.digest})
    other = Browser()
    again = JobSession(parts.job, other, MODULE, blocked=False)
    assert other.wait_for("module")[0] == {"type": "module", "digest": MODULE.digest}  # the page has it: only its name
    assert other.heard[0] == {"type": "blocked", "value": False}
    again.close()


def test_a_view_that_comes_later_is_given_the_module(parts: Any) -> None:
    parts.session.hear({"type": "have", "digest": MODULE.digest})
    before = len(parts.browser.wait_for("module"))
    parts.session.hear({"type": "hello", "digest": MODULE.digest})
    parts.session.hear({"type": "hello", "digest": None})
    assert len(parts.browser.wait_for("module", before + 1)) == before + 1


def test_without_the_module_the_loaders_text_says_so() -> None:
    browser = Browser()
    opened = JobSession(SimpleNamespace(id="j1", client=Server()), browser, None, blocked=False)
    assert "text is shown" in browser.wait_for("no_module")[0]["reason"]
    opened.close()


def test_requests_are_answered_by_their_number(parts: Any) -> None:
    parts.session.hear({"type": "request", "id": 1, "call": "cancel", "arguments": {"force": True}})
    parts.session.hear({"type": "request", "id": 2, "call": "source", "arguments": {}})
    parts.session.hear({"type": "request", "id": 3, "call": "format_disk", "arguments": {}})
    parts.session.hear({"type": "request", "id": 4, "call": "earlier_logs", "arguments": {}})
    parts.session.hear({"type": "request", "id": 5, "call": "cancel", "arguments": [1]})
    replies = {reply["id"]: reply for reply in parts.browser.wait_for("reply", 5)}
    assert "before" in replies[4]["error"]["found"]
    assert replies[5]["error"]["status"] == 400
    assert replies[1]["answer"]["cancel_requested"] is True
    assert [request.force for request in parts.server.calls if isinstance(request, CancelJob)] == [True]
    assert replies[2]["error"]["code"] == UnknownJob.code
    assert replies[2]["error"]["fix"] == "Look again."
    assert "no such call" in replies[3]["error"]["message"]


def test_all_widgets_are_told_when_a_cell_blocks_the_kernel(parts: Any) -> None:
    session_module.tell_all_blocked(False)
    assert [message["value"] for message in parts.browser.wait_for("blocked", 2)] == [True, False]


def test_what_is_closed_says_nothing_more(parts: Any) -> None:
    parts.session.close()
    assert parts.browser.heard[-1] == {"type": "lost"}
    count = len(parts.browser.heard)
    parts.session.tell_blocked(False)
    session_module.tell_all_blocked(True)
    assert len(parts.browser.heard) == count
