"""What a widget's browser side is told of a job: frames of what it follows, and answers to what it asks, by custom messages.

All of it comes from threads of its own: a kernel that a cell blocks hears nothing, but can speak. The messages' shapes are those of
`protocol.stream`; in `README.md` beside this they are listed. Knows no ipywidgets. Runs in the kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import msgspec

from gpulayer.client.client import START_WORKERS_SECONDS
from gpulayer.errors import GPUlayerError, InvalidSpec
from gpulayer.protocol import (
    CancelJob,
    FailedFrame,
    Followed,
    FollowJob,
    FollowLogs,
    FollowMetrics,
    GetSource,
    JobFrame,
    LogsFrame,
    MetricsFrame,
    ReadLogs,
    ReadStream,
    StartLocalWorkers,
    StreamError,
    StreamFrame,
    StreamFrames,
)
from gpulayer_jupyter.widgets.module import ViewsModule

JOB, LOGS, METRICS = -1, -2, -3
"""What the kernel tells by itself, so that a view draws although a blocked kernel hears no subscription."""
TAIL_BYTES = 256 * 1024
HELD_SECONDS = 10.0
GATHER_SECONDS = 0.1
PUSH_SECONDS = (0.0, 0.3, 1.0, 3.0, 8.0)
"""When the module is sent, until it is acknowledged: a page hears nothing before it has made the widget."""
PUSH_KNOWN_SECONDS = (0.0, 1.5, 6.0)
"""The same where a page of this kernel has had it before: first only its name."""
EARLIER_LIMIT_BYTES = 256 * 1024

Send = Callable[[dict[str, Any]], None]
_sessions: WeakSet[JobSession] = WeakSet()
_acknowledged: set[str] = set()  # digests of modules that a page has


class JobSession:
    """One widget's conversation.

    Args:
        job: the `client.job.Job`.
        send: sends one custom message; called from several threads, one at a time.
        module: None where this installation has none.
        blocked: a cell follows the job, so that nothing is heard meanwhile.
    """

    def __init__(self, job: Any, send: Send, module: ViewsModule | None, *, blocked: bool) -> None:
        self._job = job
        self._send_message = send
        self._module = module
        self._lock = threading.Lock()  # of sending
        self._changes = threading.Lock()  # of what is followed
        self._stop = threading.Event()
        self._has_module = threading.Event()
        self._generation = 0
        self._follows: dict[int, Followed] = {
            JOB: FollowJob(job_id=job.id),
            LOGS: FollowLogs(job_id=job.id, tail_bytes=TAIL_BYTES),
            METRICS: FollowMetrics(job_id=job.id),
        }
        _sessions.add(self)
        self.tell_blocked(blocked)
        self._start(self._push_module)
        self._begin_reading()

    # ---- said by the browser

    def hear(self, content: dict[str, Any]) -> None:
        """Take one message; what takes time is done in a thread."""
        match content.get("type"):
            case "hello":
                if self._module is not None and content.get("digest") != self._module.digest:
                    self._start(lambda: self._send(self._module.message()) if self._module else None)
            case "have":
                self._has_module.set()
                _acknowledged.add(str(content.get("digest")))
            case "subscribe":
                self._subscribe(content)
            case "unsubscribe":
                with self._changes:
                    self._follows.pop(content.get("id", 0), None)
            case "request":
                self._start(lambda: self._answer(content))

    def _subscribe(self, content: dict[str, Any]) -> None:
        number = content.get("id")
        if not isinstance(number, int) or number <= 0:
            return  # nobody could be told
        try:
            to: Followed = msgspec.convert(content.get("to"), Followed)
            if isinstance(to, FollowJob | FollowLogs | FollowMetrics) and to.job_id != self._job.id:
                raise InvalidSpec("A widget follows its own job only.", asked=str(to.job_id), found=self._job.id)
        except (msgspec.ValidationError, InvalidSpec) as error:
            self._send({"type": "frame", "after": None, "frame": msgspec.to_builtins(FailedFrame(id=number, error=_told(error)))})
            return
        own = {FollowJob: JOB, FollowMetrics: METRICS}.get(type(to))
        if isinstance(to, FollowLogs) and to.rank is None:
            own = LOGS
        with self._changes:
            self._follows[number] = to
            if own is not None:
                self._follows.pop(own, None)
        self._begin_reading()

    def _answer(self, content: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"type": "reply", "id": content.get("id")}
        try:
            answer = self._carry_out(str(content.get("call")), dict(content.get("arguments") or {}))
            reply["answer"] = answer if isinstance(answer, dict) else msgspec.to_builtins(answer)
        except (GPUlayerError, ValueError, TypeError, KeyError) as error:
            reply["error"] = msgspec.to_builtins(_told(error))
        self._send(reply)

    def _carry_out(self, call: str, arguments: dict[str, Any]) -> Any:
        client, job_id = self._job.client, self._job.id
        match call:
            case "earlier_logs":
                rank = arguments.get("rank")
                limit = min(int(arguments.get("limit_bytes") or EARLIER_LIMIT_BYTES), EARLIER_LIMIT_BYTES)
                request = ReadLogs(
                    job_id=job_id, rank=None if rank is None else int(rank), before=int(arguments["before"]), limit_bytes=limit
                )
                return client.call("read_logs", request)
            case "source":
                return client.call("read_source", GetSource(job_id=job_id))
            case "cancel":
                return client.call("cancel", CancelJob(job_id=job_id, force=bool(arguments.get("force"))))
            case "start_local_workers":
                request_workers = StartLocalWorkers(count=int(arguments["count"]), job_id=job_id)
                client.call("start_local_workers", request_workers, timeout=START_WORKERS_SECONDS)
                return {}
            case "join_command":
                return {"command": "gpulayer worker start"}
        raise InvalidSpec("A widget makes no such call.", asked=call)

    # ---- said to the browser

    def tell_blocked(self, blocked: bool) -> None:
        """Say whether anything is heard."""
        self._send({"type": "blocked", "value": blocked})

    def close(self) -> None:
        """Say that nothing more is told."""
        self._send({"type": "lost"})
        self._stop.set()
        _sessions.discard(self)

    def _send(self, message: dict[str, Any]) -> None:
        with self._lock:
            if not self._stop.is_set():
                self._send_message(message)

    def _push_module(self) -> None:
        module = self._module
        if module is None:
            reason = "This installation has no views for widgets (gpulayer was built without labextension): text is shown."
            for _ in self._times(PUSH_SECONDS):
                self._send({"type": "no_module", "reason": reason})
            return
        is_known = module.digest in _acknowledged
        for number in self._times(PUSH_KNOWN_SECONDS if is_known else PUSH_SECONDS):
            self._send(module.name() if is_known and number == 0 else module.message())

    def _times(self, seconds: tuple[float, ...]) -> Any:
        before = 0.0
        for number, at in enumerate(seconds):
            # Both ends are looked at: a page may have the module, or the widget may be closed.
            if self._has_module.wait(at - before) or self._stop.is_set():
                return
            before = at
            yield number

    def _begin_reading(self) -> None:
        with self._changes:
            self._generation += 1
            generation = self._generation
        self._start(lambda: self._read(generation))

    def _read(self, generation: int) -> None:
        """Ask for what is followed until something else is followed; what comes to an earlier question then counts for nothing."""
        while not self._stop.is_set():
            with self._changes:
                asked = dict(self._follows)
                if not asked or generation != self._generation:
                    return
            try:
                answer: StreamFrames = self._job.client.call_patiently("read_stream", ReadStream(subscriptions=asked, wait=HELD_SECONDS))
            except GPUlayerError as error:
                for number in asked:
                    self._send({"type": "frame", "after": None, "frame": msgspec.to_builtins(FailedFrame(id=number, error=_told(error)))})
                return
            for frame in answer.frames:
                with self._changes:
                    if generation != self._generation:
                        return
                    known = self._follows.get(_number_of(frame))
                    if known is None:
                        continue
                    following = _moved(known, frame)
                    if following is None:
                        del self._follows[_number_of(frame)]
                    else:
                        self._follows[_number_of(frame)] = following
                self._send({"type": "frame", "after": getattr(known, "after", None), "frame": msgspec.to_builtins(frame)})
            if answer.frames and self._stop.wait(GATHER_SECONDS):
                return

    def _start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name=f"gpulayer-widget-{self._job.id}", daemon=True).start()


def tell_all_blocked(blocked: bool) -> None:
    """Tell every widget of this kernel whether it is heard."""
    for session in list(_sessions):
        session.tell_blocked(blocked)


def _number_of(frame: StreamFrame) -> int:
    number = getattr(frame, "id", None)
    return number if number is not None else 0


def _moved(to: Followed, frame: StreamFrame) -> Followed | None:
    """What to ask for after this frame; None once there is no more."""
    if isinstance(frame, JobFrame) and isinstance(to, FollowJob):
        return None if frame.status.state.is_terminal else msgspec.structs.replace(to, after_revision=frame.status.revision)
    if isinstance(frame, LogsFrame | MetricsFrame) and isinstance(to, FollowLogs | FollowMetrics):
        return None if frame.page.complete else msgspec.structs.replace(to, after=frame.page.next)
    return None


def _told(error: Exception) -> StreamError:
    if isinstance(error, GPUlayerError):
        return StreamError(
            code=error.code, status=error.http_status, message=error.message, asked=error.asked, found=error.found, fix=error.fix
        )
    return StreamError(
        code="invalid_spec", status=400, message="The widget's message makes no sense.", found=f"{type(error).__name__}: {error}"
    )
