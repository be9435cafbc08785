"""What a browser's tabs ask: followers for their sockets, the multiplexed poll, and who draws which job.

A poll and a socket read the same followers; sockets are the server's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping

from gpulayer.control.following import Follower, JobFollower, LogsFollower, MetricsFollower
from gpulayer.control.following_jobs import JobsFollower
from gpulayer.control.open_home import OpenHome
from gpulayer.control.store import jobs
from gpulayer.control.views import views_topic
from gpulayer.errors import GPUlayerError, Interrupted, encode_error
from gpulayer.protocol import (
    FailedFrame,
    Followed,
    FollowJob,
    FollowJobs,
    FollowLogs,
    FollowMetrics,
    JobId,
    JobViews,
    StreamError,
    StreamFrame,
    StreamFrames,
)
from gpulayer.settings import LONG_POLL_SECONDS

COALESCE_SECONDS = 0.05
"""Between two reads of one subscription: what comes in that time travels in one frame."""
FRAME_LIMIT_BYTES = 256 * 1024 - 4096
"""Of one frame's JSON, but for a job's record, which is one however large; the rest is for a page's own fields."""
POLL_LIMIT_BYTES = 1024 * 1024
"""Once so much has been read for one poll, the other subscriptions have their turn in a later one."""
LEAST_FRAME_BYTES = 16 * 1024


class StreamCalls(OpenHome):
    """What the tabs of a browser ask of an open home."""

    def follow(self, to: Followed, *, is_poll: bool = False) -> Follower:
        """What one subscription has to tell, from its cursor on."""
        match to:
            case FollowJob():
                return JobFollower(self._database, self._clock, to, tells_reason_at_first=not is_poll)
            case FollowLogs():
                return LogsFollower(self._database, self._clock, to)
            case FollowMetrics():
                return MetricsFollower(self._database, self._clock, to)
            case FollowJobs():
                return JobsFollower(self._database, self._clock, to)

    async def read_stream(self, *, subscriptions: Mapping[int, Followed], wait: float = 0.0) -> StreamFrames:
        """What there is for these subscriptions, held while there is nothing; one frame each at most."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max(wait, 0.0), LONG_POLL_SECONDS)
        followers = {number: self.follow(to, is_poll=True) for number, to in _in_turn(subscriptions)}
        limit_bytes = min(max(POLL_LIMIT_BYTES // max(len(followers), 1), LEAST_FRAME_BYTES), FRAME_LIMIT_BYTES)
        with self.views.draw(shown_by(subscriptions.values()), lingers=True):
            if wait > 0 and all(map(_goes_on, subscriptions.values())):
                await pause(COALESCE_SECONDS)  # else a job that prints all the time would be asked for all the time
            while True:
                topics = sorted({topic for follower in followers.values() for topic in follower.topics})
                with self.waiters.watch(*(topics or [_NO_TOPIC])) as watch:
                    frames = await _read_all(followers, limit_bytes)
                    left = deadline - loop.time()
                    if frames or left <= 0:
                        return StreamFrames(frames=tuple(frames))
                    if topics == sorted({topic for follower in followers.values() for topic in follower.topics}):
                        again = min((one.look_again_seconds for one in followers.values() if one.look_again_seconds), default=left)
                        if await watch.changed(min(left, again)):
                            await pause(COALESCE_SECONDS)

    async def read_views(self, *, job_id: JobId, wait: float = 0.0) -> JobViews:
        """How many output views draw a job, held while there are none; at once where this control plane serves no browser."""
        await self._database.read(lambda c: jobs.job_row(c, job_id))

        async def check() -> tuple[JobViews, bool]:
            count = self.views.count(job_id)
            return JobViews(count=count), count > 0 or not self._serves_browsers

        return await self.waiters.hold([views_topic(job_id)], wait=wait, check=check)


def shown_by(subscriptions: Iterable[Followed]) -> list[JobId]:
    """The jobs that these subscriptions' views draw."""
    return [to.job_id for to in subscriptions if isinstance(to, FollowJob) and to.shows]


def failed_frame(number: int | None, error: GPUlayerError) -> FailedFrame:
    """The error as a stream tells it."""
    fields = encode_error(error)["error"]
    return FailedFrame(id=number, error=StreamError(**{name: fields[name] for name in StreamError.__struct_fields__}))


async def pause(seconds: float) -> None:
    """Let others go on for a while: what changes meanwhile is read together."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(seconds, over.set_result, None)
    try:
        await over
    finally:
        timer.cancel()


async def _read_all(followers: dict[int, Follower], limit_bytes: int) -> list[StreamFrame]:
    frames: list[StreamFrame] = []
    size_bytes = 0
    for number, follower in followers.items():
        try:
            frame = await follower.read(number, limit_bytes=limit_bytes)
        except Interrupted:
            raise  # the control plane closes: nothing is wrong with this subscription
        except GPUlayerError as error:
            frame = failed_frame(number, error)
        if frame is not None:
            frames.append(frame)
            size_bytes += limit_bytes
            if size_bytes >= POLL_LIMIT_BYTES:
                break
    return frames


def _goes_on(to: Followed) -> bool:
    """Whether the tab has had something of this already."""
    return to.after_revision is not None if isinstance(to, FollowJob) else bool(to.after)


def _in_turn(subscriptions: Mapping[int, Followed]) -> list[tuple[int, Followed]]:
    """Records and the list first, as they are small; behind them no output has a fixed place, so that none is always the last."""
    state = [(number, to) for number, to in subscriptions.items() if isinstance(to, FollowJob | FollowJobs)]
    rest = [(number, to) for number, to in subscriptions.items() if not isinstance(to, FollowJob | FollowJobs)]
    random.shuffle(rest)
    return [*state, *rest]


_NO_TOPIC = "nothing"
"""Signalled by nobody: a poll without subscriptions waits for its end."""
