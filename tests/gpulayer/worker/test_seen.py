"""Attempts that were taken up: each once, and only so many are remembered."""

from __future__ import annotations

from gpulayer.protocol import AttemptRef, TaskId
from gpulayer.worker.seen import REMEMBERED_ATTEMPTS, SeenAttempts


def _ref(number: int) -> AttemptRef:
    return AttemptRef(task_id=TaskId(f"j{number}.0"), attempt=1)


def test_an_attempt_is_new_once() -> None:
    seen = SeenAttempts()
    assert seen.add(_ref(1))
    assert not seen.add(_ref(1))
    assert seen.add(AttemptRef(task_id=TaskId("j1.0"), attempt=2))


def test_the_oldest_are_forgotten() -> None:
    seen = SeenAttempts()
    for number in range(REMEMBERED_ATTEMPTS + 1):
        assert seen.add(_ref(number))
    assert not seen.add(_ref(REMEMBERED_ATTEMPTS))
    assert not seen.add(_ref(1))
    assert seen.add(_ref(0))
