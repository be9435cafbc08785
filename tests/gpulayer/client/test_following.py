from __future__ import annotations

import queue
import threading

import pytest
from support.client import chunk, job_status

from gpulayer.client.following import Following
from gpulayer.client.job import Job
from gpulayer.protocol import DisplayPage, LogPage
from gpulayer.states import JobState

PAGE = LogPage(chunks=(chunk(b"one\n"),), next=1, complete=False)


class ScriptedJob:
    """A job whose two streams of news a test writes down; each waits for `go` before its end."""

    id = "j1"

    def __init__(self, pages=(), records=(), error: BaseException | None = None) -> None:
        self.go = threading.Event()
        self._pages, self._records, self._error = pages, records, error

    def follow_pages(self, rank, stop):
        yield from self._pages
        self.go.wait(10)
        if self._error is not None:
            raise self._error

    def follow_status(self, stop):
        yield from self._records
        self.go.wait(10)


def all_of(following: Following) -> list:
    return list(iter(lambda: following.next(10), None))


def test_news_of_both_kinds_come_and_then_an_end_that_lasts():
    job = ScriptedJob([PAGE], [job_status(JobState.RUNNING)])
    following = Following(job)
    first = [following.next(10), following.next(10)]
    assert PAGE in first
    assert job_status(JobState.RUNNING) in first
    with pytest.raises(queue.Empty):
        following.next(0.001)
    job.go.set()
    assert all_of(following) == []
    assert all_of(following) == []


@pytest.mark.parametrize("error", [KeyError("odd"), SystemExit(3)])
def test_whatever_ends_a_thread_is_raised_after_what_had_come(error):
    job = ScriptedJob([PAGE], error=error)
    job.go.set()
    following = Following(job)
    assert following.next(10) == PAGE
    with pytest.raises(type(error)):
        following.next(10)


class QuietJob(Job):
    """A job that runs and of which nothing is told: each call is answered as its wait ends."""

    def __init__(self):
        self.asked = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        super().__init__(self, job_status(JobState.RUNNING))

    def call_patiently(self, name, request):
        self.asked.release()
        assert self.go.acquire(timeout=10)
        if name == "read_logs":
            return LogPage(chunks=(), next=0, complete=False)
        return DisplayPage(displays=(), next=0, complete=False) if name == "read_displays" else job_status(JobState.RUNNING)


def test_who_closes_is_asked_for_no_further_though_nothing_comes():
    job = QuietJob()
    following = Following(job, displays=True)
    for _ in range(3):
        assert job.asked.acquire(timeout=10)
    following.close()
    job.go.release(3)
    assert all_of(following) == []  # all three threads have ended
    assert not job.asked.acquire(blocking=False)
