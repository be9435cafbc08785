"""A job in a few words: state, time, shape, and what would let it run."""

from __future__ import annotations

import pytest
from support.job_views import status_of

from gpulayer.client.status_text import clock_text, one_line, state_text, time_text, took_text, ways_out
from gpulayer.protocol import Waiting
from gpulayer.states import JobState


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (42.9, "0:42"), (61, "1:01"), (3723, "1:02:03")])
def test_times_as_a_clock_shows_them(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.04 s"), (0.9, "0.9 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1:00"), (3723, "1:02:03")]
)
def test_what_is_over_took_so_long(seconds: float, text: str) -> None:
    assert took_text(seconds) == text


def test_a_clock_goes_until_the_end() -> None:
    assert time_text(status_of(), now=10.9) == "0:00"
    assert time_text(status_of(JobState.SUCCEEDED, ended_at=10.9)) == "0.9 s"
    assert time_text(status_of(started_at=None)) is None


def test_one_line() -> None:
    assert one_line(status_of(JobState.SUCCEEDED, ended_at=52.0)) == "succeeded after 42 s · 2 nodes × 2 devices (cpu)"
    assert one_line(status_of(JobState.QUEUED, started_at=None, waiting_for="no worker yet")).startswith("queued: no worker yet · 2 nodes")
    assert state_text(status_of(cancel_requested=True)) == "stopping"


def test_what_helps_a_job_that_waits() -> None:
    queued = {"started_at": None, "waiting_for": "no worker yet"}
    ways = ways_out(status_of(JobState.QUEUED, waiting=Waiting(reason="no_worker", local_workers=2), **queued))
    assert "gpulayer.connect().ensure_local_workers(2, cpu_devices=2)" in ways[0]
    assert "gpulayer worker start" in ways[1]
    assert ways_out(status_of(JobState.QUEUED, waiting=Waiting(reason="busy"), **queued)) == []
    assert ways_out(status_of(waiting=Waiting(reason="no_worker"))) == []
