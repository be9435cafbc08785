"""How many output views draw each job at this moment: what a kernel asks before it draws the job by itself.

A view counts while its tab is subscribed to the job, or shortly after the answer of a poll that followed it. Runs in the control
plane's loop; other processes of the home count their own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from gpulayer.protocol import JobId

LINGER_SECONDS = 5.0
"""From the answer of one poll to the next one of the same tab: a slow page, a tab in the background."""


def views_topic(job_id: JobId) -> str:
    """More or fewer views draw this job."""
    return f"views/{job_id}"


class Views:
    """The views of one control plane.

    Args:
        signal: wakes who waits for a topic.
    """

    def __init__(self, signal: Callable[[str], None]) -> None:
        self._signal = signal
        self._drawn: Counter[JobId] = Counter()
        self._lingering: Counter[JobId] = Counter()

    def count(self, job_id: JobId) -> int:
        """How many draw it; between two polls of tabs that poll there is one at least."""
        return max(self._drawn[job_id], min(self._lingering[job_id], 1))

    @contextmanager
    def draw(self, job_ids: Iterable[JobId], *, lingers: bool = False) -> Iterator[None]:
        """Count a view of each of these jobs while the block runs, and with `lingers` for a while after it."""
        drawn = list(job_ids)
        for job_id in drawn:
            self._change(self._drawn, job_id, 1)
        try:
            yield
        finally:
            for job_id in drawn:
                if lingers:
                    self._lingering[job_id] += 1
                    asyncio.get_running_loop().call_later(LINGER_SECONDS, self._change, self._lingering, job_id, -1)
                self._change(self._drawn, job_id, -1)

    def _change(self, counted: Counter[JobId], job_id: JobId, by: int) -> None:
        before = self.count(job_id)
        counted[job_id] += by
        if not counted[job_id]:
            del counted[job_id]
        if self.count(job_id) != before:
            self._signal(views_topic(job_id))
