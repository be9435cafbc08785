"""How long to pause after a held call that came back at once with nothing.

A control plane that does not hold calls (an older one) answers at once; asked again and again it would be hammered. The
intervals are those that such a control plane expects.
"""

from __future__ import annotations

from gpulayer.protocol import (
    AcquireTask,
    EventPage,
    GetJob,
    JobStatus,
    LogPage,
    Message,
    MetricPage,
    Rendezvous,
    WorkerOrders,
)

ACQUIRE_INTERVAL_SECONDS = 0.5
WAIT_INTERVAL_SECONDS = 0.25
AT_ONCE_SECONDS = 0.1
"""A held call that ends sooner, with nothing, was not held: loopback takes below 1 ms, a far server up to 0.2 s a round trip."""


def pause_after(request: Message, answer: Message, elapsed_seconds: float) -> float:
    """Seconds to wait before the caller may ask again; 0 where the call was held, or brought something."""
    wait = getattr(request, "wait", 0.0)
    if wait <= 0 or elapsed_seconds >= min(wait, AT_ONCE_SECONDS) or not _is_empty(request, answer):
        return 0.0
    interval = ACQUIRE_INTERVAL_SECONDS if isinstance(request, AcquireTask) else WAIT_INTERVAL_SECONDS
    return max(0.0, min(interval, wait) - elapsed_seconds)


def _is_empty(request: Message, answer: Message) -> bool:
    if isinstance(answer, WorkerOrders):
        return not answer.assignments and not answer.stops
    if isinstance(answer, JobStatus) and isinstance(request, GetJob):
        unchanged = request.after_revision is None or answer.revision <= request.after_revision
        return unchanged and not answer.state.is_terminal
    if isinstance(answer, LogPage):
        return not answer.chunks and not answer.complete
    if isinstance(answer, MetricPage):
        return not answer.batches and not answer.complete
    if isinstance(answer, EventPage):
        return not answer.events
    return isinstance(answer, Rendezvous) and answer.address is None
