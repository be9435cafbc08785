"""The transport to a control plane that runs in this process, on an event loop of another thread.

The control plane comes as an argument, so nothing here imports it. Blocks the calling thread, never the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gpulayer.calls import Call
from gpulayer.client.artifact_file import send_parts, write_artifact
from gpulayer.client.exchange import FilePart
from gpulayer.errors import Interrupted, ServerUnreachable, UnknownArtifact, Unsupported
from gpulayer.protocol import Digest, Message, Registered, WorkerId

T = TypeVar("T")


class HandlesCalls(Protocol):
    """What this transport needs of a control plane."""

    async def handle(self, call: Call, request: Any, caller: Any) -> Message: ...

    def artifact_path(self, sha256: Digest) -> Path | None: ...

    async def put_artifact_part(self, sha256: Digest, *, offset: int, total_bytes: int, data: bytes | memoryview) -> bool: ...


class InProcessTransport:
    """Calls on a control plane of this process.

    Args:
        control_plane: who answers.
        loop: the running loop it lives in; never the calling thread's own.
        caller: who calls, as the control plane's `Caller`.
        description: where it leads, for people.
        as_worker: makes the caller that a registered worker is.
    """

    def __init__(
        self,
        control_plane: HandlesCalls,
        loop: asyncio.AbstractEventLoop,
        caller: Any,
        description: str,
        *,
        as_worker: Callable[[WorkerId], Any] | None = None,
    ) -> None:
        self.description = description
        self._control_plane = control_plane
        self._loop = loop
        self._caller = caller
        self._as_worker = as_worker
        self._lock = threading.Lock()
        self._held: set[_Ask] = set()
        self._closed = False
        self._pid = os.getpid()

    @property
    def token(self) -> str | None:
        return None

    def call(self, call: Call, request: Message, *, timeout: float | None = None) -> Any:
        answer = self._run(self._control_plane.handle(call, request, self._caller), timeout, call.name)
        if isinstance(answer, Registered) and self._as_worker is not None:
            self._caller = self._as_worker(answer.worker_id)
        return answer

    def has_artifact(self, sha256: Digest) -> bool:
        return self._control_plane.artifact_path(sha256) is not None

    def put_artifact(self, path: Path, sha256: Digest) -> None:
        if self.has_artifact(sha256):
            return

        def send(part: FilePart, total: int) -> None:
            putting = self._control_plane.put_artifact_part(sha256, offset=part.offset, total_bytes=total, data=part.read())
            self._run(putting, None, "put_artifact")

        send_parts(path, send)

    def get_artifact(self, sha256: Digest, destination: Path) -> None:
        source = self._control_plane.artifact_path(sha256)
        if source is None:
            raise UnknownArtifact("No artifact has this digest.", asked=sha256)
        with source.open("rb") as file:
            write_artifact(destination, sha256, iter(lambda: file.read(1 << 20), b""))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            held = list(self._held)
        for ask in held:
            ask.cancel()

    def _run(self, work: Coroutine[Any, Any, T], timeout: float | None, what: str) -> T:
        if _running_loop() is self._loop:
            work.close()
            raise Unsupported("A blocking call was made from the control plane's own loop.", asked=what, fix="Call it from another thread.")
        if os.getpid() != self._pid:
            # The loop's thread is the parent's: here nobody would ever answer.
            work.close()
            raise Unsupported(
                "A forked process can't use its parent's embedded control plane.", asked=what, fix="Call gpulayer.connect() here."
            )
        with self._lock:
            if self._closed or self._loop.is_closed():
                work.close()
                raise Interrupted(
                    "This connection to the embedded control plane is closed.", asked=what, fix="Call gpulayer.connect() again."
                )
            ask = _Ask(work, self._loop)
            self._held.add(ask)
        try:
            if not ask.wait(timeout):
                raise ServerUnreachable(
                    "The embedded control plane did not answer in time.", asked=what, found=f"nothing within {timeout} s"
                )
            return ask.result()  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            raise Interrupted("The connection was closed during the call.", asked=what) from None
        finally:
            # Also for KeyboardInterrupt: a wait whose caller is gone ends at once.
            ask.cancel()
            with self._lock:
                self._held.discard(ask)


class _Ask:
    """One piece of work in the loop, and the calling thread that waits for it: a task and a lock, and one wake-up each way.

    `run_coroutine_threadsafe` does the same with two futures that are chained to each other, at three times the cost.
    """

    __slots__ = ("_answer", "_done", "_error", "_has_ended", "_lock", "_loop", "_task", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> None:
        self._answer: Any = None
        self._error: BaseException | None = None
        self._work: Coroutine[Any, Any, Any] | None = work
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None
        self._lock = threading.Lock()
        self._has_ended = False
        self._done = threading.Lock()
        self._done.acquire()
        loop.call_soon_threadsafe(self._start)

    def wait(self, timeout: float | None) -> bool:
        """Wait for the end of the work; False where the time ended first."""
        return self._done.acquire(timeout=-1 if timeout is None else max(timeout, 0.0))

    def result(self) -> Any:
        """What the work came to, once it has ended."""
        error, self._error = self._error, None
        if error is None:
            return self._answer
        try:
            raise error
        finally:
            del error  # its traceback holds this frame

    def cancel(self) -> None:
        """End the wait at once, and then the work; from any thread, and whether or not the loop still runs."""
        if not self._finish(None, asyncio.CancelledError()):
            return
        with self._lock:
            work, self._work = self._work, None
        if work is not None:
            work.close()  # it never began
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing runs there any more
                self._loop.call_soon_threadsafe(self._cancel)

    def _finish(self, answer: Any, error: BaseException | None) -> bool:
        """Wake the thread that waits; False where something else has done so."""
        with self._lock:
            if self._has_ended:
                return False
            self._has_ended, self._answer, self._error = True, answer, error
        self._done.release()
        return True

    # ---- in the loop

    def _start(self) -> None:
        with self._lock:
            work, self._work = self._work, None
        if work is None:
            return  # cancelled before it began
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: asyncio.Task[Any]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._finish(None if error is not None else task.result(), error)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
