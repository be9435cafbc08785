"""The jobs that were submitted here and of which nothing has been told since: they have no output and have not ended.

Whoever waits for either need not look at the store first. The loop hears of commits in their order, of other processes' as well,
before a watch that is there already is woken for them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from gpulayer.control.store.logs import logs_topic
from gpulayer.protocol import JobId

KEPT_JOBS = 20_000
"""The oldest are forgotten: who waits for one of those looks at the store."""


class QuietJobs:
    """The quiet jobs of one control plane. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[str, None] = {}  # an ordered set: of each job the topic that ends it

    def __contains__(self, job_id: JobId) -> bool:
        return logs_topic(job_id) in self._topics

    def add(self, job_id: JobId) -> None:
        """The present transaction stores this job.

        Called in that transaction: once it is committed another process may run the job to its end, and the loop, if something
        holds it up, hears of that before whoever submitted it goes on.
        """
        with self._lock:
            self._topics[logs_topic(job_id)] = None
            if len(self._topics) > KEPT_JOBS:
                del self._topics[next(iter(self._topics))]

    def hear(self, topics: Iterable[str]) -> None:
        """These topics changed: the topic of a job's output is told of its end too."""
        with self._lock:
            for topic in topics:
                self._topics.pop(topic, None)
