"""The progress sender: the last word always arrives, others as they can."""

from __future__ import annotations

import threading

import pytest

from gpulayer.errors import AttemptLost, InvalidSpec
from gpulayer.worker.progress_sender import ProgressSender

WAIT = 30.0


def said(done, **fields):
    return ("progress", 1.0, {"done": done, "total": None, "text": None, **fields})


def test_the_first_and_the_last_word_arrive_and_few_between():
    words = []
    sender = ProgressSender(words.append, on_lost=lambda error: None, tell=[].append)
    for done in range(1000):
        sender.add((said(done), ("metrics", 1.0, {})))
    assert sender.close(WAIT)
    assert words[-1].done == 999
    assert len(words) <= 3


def test_what_is_none_is_left_out():
    words = []
    sender = ProgressSender(words.append, on_lost=lambda error: None, tell=[].append)
    sender.add((said("many"),))
    sender.add((said(float("inf")),))  # JSON has none: the job's record could not be read
    sender.add((said(1.0, text="half a pair: \ud800"),))
    sender.add((said(1.0, text="x" * 201),))
    sender.add((("metrics", 1.0, {}),))
    sender.add((said(2.0, total=4.0, text="half"),))
    assert sender.close(WAIT)
    assert [(one.done, one.total, one.text) for one in words] == [(2.0, 4.0, "half")]


@pytest.mark.parametrize(("error", "is_lost"), [(AttemptLost("over"), True), (InvalidSpec("odd"), False)])
def test_a_refusal_ends_nothing_and_a_lost_attempt_ends_it(error, is_lost):
    called = threading.Event()
    lost = []

    def send(progress):
        called.set()
        raise error

    sender = ProgressSender(send, on_lost=lost.append, tell=[].append)
    sender.add((said(1),))
    assert called.wait(WAIT)
    assert sender.close(WAIT) is not is_lost
    assert lost == ([error] if is_lost else [])
