"""What a job does, as it comes: its output, its record and what it displays, from threads that ask for them to the one that shows them."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from gpulayer.errors import GPUlayerError
from gpulayer.protocol import Display, JobStatus, LogPage

if TYPE_CHECKING:
    from gpulayer.client.job import Job

News = JobStatus | LogPage | Display
MOST_INTERRUPTS = 5
"""So often a job that is being submitted or killed is seen to its end all the same; a server that hangs is not waited for longer."""


class Following:
    """The news of one job, from its first line to its end.

    Whoever shows them may be interrupted (Ctrl-C) and go on with the same `Following`: nothing is asked for twice.

    Args:
        job: whose.
        rank: output of this rank only.
        displays: also what it displays.
    """

    def __init__(self, job: Job, rank: int | None = None, *, displays: bool = False) -> None:
        self._news: queue.SimpleQueue[News | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        sources: list[Iterable[News]] = [job.follow_pages(rank, self._stop), job.follow_status(self._stop)]
        if displays:
            sources.append(job.follow_displays(self._stop))
        self._running = len(sources)
        self._error: BaseException | None = None
        for source in sources:
            threading.Thread(target=self._push, args=(source,), name=f"gpulayer-follow-{job.id}", daemon=True).start()

    def next(self, timeout: float | None = None) -> News | None:
        """What comes next, a record, a page of output or a display; None once the job has ended and all has been given.

        Raises:
            queue.Empty: nothing within `timeout` seconds.
            BaseException: what kept one of the threads from asking on.
        """
        while True:
            # Read before the queue is: who has stopped running has put everything before.
            running = self._running
            if self._error is not None and self._news.empty():
                raise self._error
            if not running and self._news.empty():
                return None
            item = self._news.get(timeout=timeout)
            if item is not None:
                return item

    def close(self) -> None:
        """Ask no further. A held call of the threads ends by itself within `LONG_POLL_SECONDS`; nobody waits for that."""
        self._stop.set()

    def _push(self, source: Iterable[News]) -> None:
        try:
            for item in source:
                self._news.put(item)
                if self._stop.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - top of a thread: whatever ended it is raised by next(), not lost
            self._error = error
        finally:
            with self._lock:
                self._running -= 1
            # An end is a state, not news: an interrupt may lose what was just taken from the queue, and this only wakes.
            self._news.put(None)


def follow_through_interrupts(
    job: Job,
    show: Callable[[Following], None],
    *,
    on_interrupt: Callable[[int], None] | None = None,
    is_leaving: Callable[[], bool] | None = None,
    displays: bool = False,
) -> int:
    """Show the job until it has ended, whatever Ctrl-C the person presses meanwhile; returns how many those were.

    The first one cancels the job, a second one kills it; both times its end is waited for.

    Args:
        job: whose news.
        show: takes the news until there are no more; called again after an interrupt.
        on_interrupt: told the number of each interrupt, before it is acted upon.
        is_leaving: asked at the first interrupt, before the job is cancelled: whether it only goes before the end of this process, which
            the job outlives. Then nothing is cancelled, and no end is waited for.
        displays: as in `Following`.
    """
    interrupts = ordered = 0
    following: Following | None = None
    try:
        while True:
            # An interrupt may come at any line: before the first news, or while the job is being cancelled.
            try:
                if interrupts > ordered:
                    if interrupts == 1 and is_leaving is not None and is_leaving():
                        return interrupts
                    ordered = interrupts
                    if on_interrupt is not None:
                        on_interrupt(interrupts)
                    job.cancel(force=interrupts > 1)
                following = following or Following(job, displays=displays)
                show(following)
                return interrupts
            except KeyboardInterrupt:
                interrupts += 1
    finally:
        if following is not None:
            following.close()


@contextlib.contextmanager
def ends_with_interrupt(job: Job) -> Iterator[None]:
    """An interrupt that leaves the block ends the job, unless it has ended: its ranks have hardly begun, and nobody follows it."""
    try:
        yield
    except KeyboardInterrupt:
        end_interrupted(lambda: job)
        raise


def end_interrupted(find: Callable[[], Job]) -> None:
    """Kill a job whose submitter was interrupted before it followed it, and wait for its end.

    An interrupt that comes meanwhile does not keep the job from being found and killed, but ends the waiting.

    Args:
        find: the job; asked again when that was interrupted.
    """
    interrupts = 0
    while interrupts < MOST_INTERRUPTS:
        try:
            job = find()
            if not job.status.state.is_terminal:
                job.cancel(force=True)
            break
        except KeyboardInterrupt:
            interrupts += 1
        except GPUlayerError:
            return  # there is none, or nobody who could end it
    else:
        return  # who presses Ctrl-C that often wants nothing but out
    with contextlib.suppress(KeyboardInterrupt, GPUlayerError):
        job.wait()
