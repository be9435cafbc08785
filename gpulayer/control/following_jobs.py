"""The subscription to the list of jobs: the newest ones whole, then those that have changed, by the table of changes."""

from __future__ import annotations

from gpulayer.control.clock import Clock
from gpulayer.control.following import ANY_JOB_TOPIC, Follower, ReasonsTimer
from gpulayer.control.statuses import job_summaries
from gpulayer.control.store import changes, jobs, rows
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.database import Database
from gpulayer.control.store.workers import WORKERS_TOPIC
from gpulayer.protocol import FollowJobs, JobId, JobsFrame, JobSummary, StreamFrame
from gpulayer.states import JobState

MOST_JOBS = 200
"""Of one frame: with the longest names and reasons these are less than 256 KB."""
FAR_BEHIND = 20_000
"""Changes that are looked through for those of jobs; from further back the list is sent whole."""


class JobsFollower(Follower):
    """The newest jobs of a home."""

    def __init__(self, database: Database, clock: Clock, to: FollowJobs) -> None:
        super().__init__(database, clock)
        self._limit = min(max(to.limit, 1), MOST_JOBS)
        self._after = to.after
        self._waiting: dict[JobId, JobSummary] = {}  # as they were told; what they wait for changes without them
        self._reasons = ReasonsTimer()
        self.topics = (ANY_JOB_TOPIC,)

    async def read(self, number: int, *, limit_bytes: int) -> StreamFrame | None:  # noqa: ARG002 - bounded by their number
        looks_at_reasons = self._reasons.is_due()
        waiting = tuple(self._waiting) if looks_at_reasons else ()
        frame = await self._read(lambda c: self._question(c, number, waiting))
        told = frame.jobs if frame.whole else tuple(job for job in frame.jobs if self._waiting.get(job.job_id) != job)
        if frame.whole:
            self._waiting.clear()
        for job in told:
            if job.state is JobState.QUEUED:
                self._waiting[job.job_id] = job
            else:
                self._waiting.pop(job.job_id, None)
        if len(self._waiting) > self._limit:  # older ones are in nobody's list
            newest = sorted(self._waiting.values(), key=lambda job: job.created_at)[-self._limit :]
            self._waiting = {job.job_id: job for job in newest}
        self._after = frame.next
        self.topics = (ANY_JOB_TOPIC, WORKERS_TOPIC) if self._waiting else (ANY_JOB_TOPIC,)
        self.look_again_seconds = self._reasons.left_seconds() if self._waiting and not looks_at_reasons else None
        return JobsFrame(id=number, jobs=told, next=frame.next, whole=frame.whole) if told or frame.whole else None

    def _question(self, c: StoreConnection, number: int, waiting: tuple[JobId, ...]) -> JobsFrame:
        newest = changes.newest_id(c)
        changed = self._changed(c, newest)
        if changed is None:
            found = jobs.newest_jobs(c, state=None, limit=self._limit, before=None)
            return JobsFrame(id=number, jobs=tuple(job_summaries(c, self._clock.now(), found)), next=newest, whole=True)
        asked = (rows.JOB.first(c, job_id=job_id) for job_id in dict.fromkeys([*changed, *waiting]))
        found = sorted((row for row in asked if row is not None), key=lambda row: row.sequence, reverse=True)
        return JobsFrame(id=number, jobs=tuple(job_summaries(c, self._clock.now(), found)), next=newest, whole=False)

    def _changed(self, c: StoreConnection, newest: int) -> list[JobId] | None:
        """The jobs that changed since the cursor; None where that is not known, or the list is the shorter answer."""
        after = self._after
        if after is None or after > newest or newest - after > FAR_BEHIND or changes.oldest_id(c) > after + 1:
            return None
        prefix = jobs.job_topic(JobId(""))
        found = [JobId(topic.removeprefix(prefix)) for topic in changes.topics_after(c, after, prefix=prefix)]
        return found if len(found) <= self._limit else None
