"""One browser tab's socket: its subscriptions, whose turn it is to be read, and what has not been taken yet.

A subscription is a task that watches its topics. Only one of a socket reads at a time, in the order of asking, and only once the
tab has taken the frame before: a flood of one job's output neither piles up here nor keeps another's state waiting. Runs in the
Jupyter server's loop; what a subscription has to tell is `gpulayer.control.following`'s business, the socket itself the handler's.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable

import msgspec
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClosedError

from gpulayer.control import ControlPlane
from gpulayer.control.stream_calls import COALESCE_SECONDS, FRAME_LIMIT_BYTES, failed_frame, pause, shown_by
from gpulayer.errors import GPUlayerError, InternalError, Interrupted, InvalidSpec, TooManyCalls
from gpulayer.protocol import MOST_SUBSCRIPTIONS, Followed, HelloFrame, StreamFrame, StreamRequest, Subscribe

MOST_REFUSALS = 100
"""Of messages that make no sense, on one socket; who sends more is told nothing more and closed."""
IDLE_SECONDS = 3600.0
"""A watch that is not signalled looks again after that; any number would do."""

_decoder = msgspec.json.Decoder(StreamRequest)
_log = logging.getLogger(__name__)


class _Name(msgspec.Struct):
    """What is read of a message that makes no sense, to say which one it was."""

    id: int | None = None


class StreamSocket:
    """The server's end of one tab's socket.

    Args:
        control_plane: what is followed.
        send: writes one frame; the future is done once the tab's connection has taken it.
        hello: the first frame; it is written at once, before anything can be heard.
    """

    def __init__(self, control_plane: ControlPlane, send: Callable[[bytes], asyncio.Future[None]], hello: HelloFrame) -> None:
        self._control_plane = control_plane
        self._write = send
        self._turn = asyncio.Lock()  # first come, first served
        self._on_its_way: asyncio.Future[None] | None = send(msgspec.json.encode(hello))
        self._subscriptions: dict[int, asyncio.Task[None]] = {}
        self._refusals = 0
        self._has_ended = False

    def __len__(self) -> int:
        """How many subscriptions there are."""
        return len(self._subscriptions)

    async def serve(self) -> None:
        """Hold the tab's subscriptions, and end them all when this is cancelled."""
        try:
            async with self._turn:
                await self._taken()
            await asyncio.get_running_loop().create_future()
        except (WebSocketClosedError, StreamClosedError):
            pass  # it has gone
        finally:
            self._has_ended = True
            tasks = list(self._subscriptions.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def hear(self, message: str | bytes) -> bool:
        """Do what the tab says; False where it has said too much that makes no sense."""
        try:
            request = _decoder.decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return await self._refuse(_named(message), _not_understood(error))
        await self._end(request.id)
        if self._has_ended or not isinstance(request, Subscribe):
            return True  # what begins after the end would never be ended
        if len(self._subscriptions) >= MOST_SUBSCRIPTIONS:
            return await self._refuse(request.id, _too_many())
        task = asyncio.ensure_future(self._follow(request.id, request.to))
        self._subscriptions[request.id] = task
        task.add_done_callback(lambda ended: self._forget(request.id, ended))
        return True

    async def _end(self, number: int) -> None:
        """No frame of it is sent after this."""
        task = self._subscriptions.pop(number, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _forget(self, number: int, task: asyncio.Task[None]) -> None:
        if self._subscriptions.get(number) is task:
            del self._subscriptions[number]

    async def _refuse(self, number: int | None, error: GPUlayerError) -> bool:
        self._refusals += 1
        if self._refusals > MOST_REFUSALS:
            return False
        async with self._turn:
            await self._send(failed_frame(number, error))
        return True

    # ---- a subscription's task

    async def _follow(self, number: int, to: Followed) -> None:
        try:
            with self._control_plane.views.draw(shown_by([to])):
                await self._tell(number, to)
        except (WebSocketClosedError, StreamClosedError, Interrupted):
            pass  # the tab has gone, or the control plane closes: the socket is closed with it
        except GPUlayerError as error:
            await self._fail(number, error)
        except Exception:  # noqa: BLE001 (top of a task: the other subscriptions go on, and this one's tab hears where to look)
            reference = secrets.token_hex(4)
            _log.exception("GPUlayer fault %s in a subscription of a stream", reference)
            fix = f"The Jupyter server's log has it under {reference}."
            await self._fail(number, InternalError("A fault in GPUlayer.", fix=fix, details={"reference": reference}))

    async def _tell(self, number: int, to: Followed) -> None:
        follower = self._control_plane.follow(to)
        while not follower.is_over:
            topics = follower.topics
            with self._control_plane.waiters.watch(*topics) as watch:
                while not follower.is_over:
                    async with self._turn:
                        await self._taken()
                        frame = await follower.read(number, limit_bytes=FRAME_LIMIT_BYTES)
                        if frame is not None:
                            await self._send(frame)
                    # Also after a look that found nothing: who waits for a place is signalled by every other job.
                    await pause(COALESCE_SECONDS)
                    if follower.topics != topics:
                        break  # and look again, once they are watched
                    if frame is None:
                        await watch.changed(follower.look_again_seconds or IDLE_SECONDS)

    async def _fail(self, number: int, error: GPUlayerError) -> None:
        try:
            async with self._turn:
                await self._send(failed_frame(number, error))
        except (WebSocketClosedError, StreamClosedError):
            pass  # nobody is left to hear it

    # ---- frames

    async def _send(self, frame: StreamFrame) -> None:
        """Write a frame once the one before has been taken; whoever calls it has the turn."""
        await self._taken()
        self._on_its_way = self._write(msgspec.json.encode(frame))
        # A tab that goes takes with it who waits for this, and then nobody would hear that it failed.
        self._on_its_way.add_done_callback(lambda written: written.cancelled() or written.exception())
        await self._taken()

    async def _taken(self) -> None:
        """Wait until what was written last has been taken, also where its own subscription did not wait so long."""
        if self._on_its_way is not None:
            await asyncio.wait([self._on_its_way])  # does not cancel it with the one who waits
            taken, self._on_its_way = self._on_its_way, None
            taken.result()


def _named(message: str | bytes) -> int | None:
    try:
        return msgspec.json.decode(message, type=_Name).id
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _not_understood(error: Exception) -> InvalidSpec:
    return InvalidSpec("The message is not what a stream takes.", found=str(error), fix="docs: Wire and errors, The stream.")


def _too_many() -> TooManyCalls:
    return TooManyCalls(
        "This socket has as many subscriptions as it may have.",
        found=f"a limit of {MOST_SUBSCRIPTIONS}",
        fix="Unsubscribe from what is not shown.",
    )
