"""Heartbeats: only while something runs, and what their answers lead to."""

from __future__ import annotations

import queue

from gpulayer.errors import AttemptLost, InternalError, ServerUnreachable, TooManyCalls
from gpulayer.protocol import AttemptRef, HeartbeatReply, TaskId
from gpulayer.worker.heartbeat import HeartbeatLoop

WAIT = 30.0
REF = AttemptRef(task_id=TaskId("job.0"), attempt=1)


class Heard:
    def __init__(self, *answers) -> None:
        self.beats: queue.SimpleQueue[tuple[AttemptRef, ...]] = queue.SimpleQueue()
        self.news: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.answers = list(answers)
        self.running: tuple[AttemptRef, ...] = ()
        self.loop = HeartbeatLoop(
            beat=self._beat,
            running=lambda: self.running,
            on_lost=self.news.put,
            on_refused=self.news.put,
            on_silence=lambda: self.news.put("silence"),
            every_seconds=0.01,
        )
        self.loop.start()

    def _beat(self, running):
        self.beats.put(running)
        answer = self.answers.pop(0) if self.answers else HeartbeatReply()
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_an_idle_worker_is_quiet_and_a_busy_one_is_heard() -> None:
    heard = Heard()
    heard.loop.work_changed()
    heard.running = (REF,)
    heard.loop.work_changed()
    assert heard.beats.get(timeout=WAIT) == (REF,)
    assert heard.beats.get(timeout=WAIT) == (REF,)
    heard.loop.stop()


def test_answers_are_passed_on_and_silence_is_not_the_end() -> None:
    refusal = AttemptLost("started again")
    heard = Heard(ServerUnreachable("away"), InternalError("a fault"), HeartbeatReply(lost=(REF,)), refusal)
    heard.running = (REF,)
    heard.loop.work_changed()
    assert [heard.news.get(timeout=WAIT) for _ in range(4)] == ["silence", "silence", REF, refusal]
    assert heard.beats.get(timeout=WAIT) == (REF,)
    heard.loop.stop()


def test_a_busy_server_is_no_refusal_and_a_fault_of_ours_is_not_the_end() -> None:
    heard = Heard(TooManyCalls("busy"), RuntimeError("a fault of ours"), HeartbeatReply(lost=(REF,)))
    heard.running = (REF,)
    heard.loop.work_changed()
    assert [heard.news.get(timeout=WAIT) for _ in range(2)] == ["silence", REF]
    heard.loop.stop()
