"""Whether an output view draws a job: the server knows, and is asked from a thread. Runs in the kernel."""

from __future__ import annotations

import threading
from typing import Any

from gpulayer.errors import GPUlayerError
from gpulayer.protocol import JobViews, ReadViews
from gpulayer.settings import LONG_POLL_SECONDS


class ViewClaim:
    """A held question to the server, which is answered once a view draws the job, and then for good: a view that goes away
    leaves nothing to be drawn.

    Args:
        job: the `client.job.Job`.
    """

    def __init__(self, job: Any) -> None:
        self._job = job
        self._claimed = threading.Event()
        self._stop = threading.Event()
        threading.Thread(target=self._ask, name=f"gpulayer-views-{job.id}", daemon=True).start()

    @property
    def is_drawn(self) -> bool:
        """A view draws the job, or did."""
        return self._claimed.is_set()

    def close(self) -> None:
        """Ask no further; a held call ends by itself."""
        self._stop.set()

    def _ask(self) -> None:
        try:
            while not self._stop.is_set() and not self._job.status.state.is_terminal:
                answer: JobViews = self._job.client.call_patiently("read_views", ReadViews(job_id=self._job.id, wait=LONG_POLL_SECONDS))
                if answer.count:
                    self._claimed.set()
                    return
        except GPUlayerError:
            # An older server knows no views, and one that went away is told by whoever follows the job: then text is drawn.
            return


def claim_of(job: Any) -> ViewClaim | None:
    """Ask for the job's views; None where there are none: an embedded control plane serves no browser."""
    return None if job.client.is_embedded else ViewClaim(job)
