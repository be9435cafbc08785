"""A control plane and workers as threads of this process, for scripts, IPython and kernels that no server stands behind.

The control plane has an event loop of its own in a thread of its own, so it also works where the main thread runs one (a
Jupyter kernel). Only keepers, and the jobs below them, are processes; all of it ends with this process.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import dataclasses
import logging
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from gpulayer import settings
from gpulayer.calls import Role
from gpulayer.client.client import Client
from gpulayer.client.in_process import InProcessTransport
from gpulayer.errors import Interrupted
from gpulayer.protocol import StartLocalWorkers, WorkerId

if TYPE_CHECKING:
    from gpulayer.control import Caller, ControlPlane
    from gpulayer.worker.agent import Agent

T = TypeVar("T")

OPEN_SECONDS = 60.0
"""Another process may be migrating the same home; that takes seconds at most."""
CLOSE_SECONDS = 15.0
"""What a process may be kept from ending: a job's grace of 10 s, and some for its last lines."""

_log = logging.getLogger(__name__)
_QUIET = logging.NullHandler()
"""Whoever configures logging has the records; without that, logging itself would write them between the lines of a notebook."""


class EmbeddedControlPlane:
    """One home's control plane in this process; `open` gives the one that is open already."""

    _open: ClassVar[dict[Path, EmbeddedControlPlane]] = {}
    _open_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, home: Path) -> None:
        logging.getLogger("gpulayer").addHandler(_QUIET)
        self.home = home
        self._pid = os.getpid()
        self._closed = False
        self._close_lock = threading.Lock()
        self._transports_lock = threading.Lock()
        self._workers = _WorkerThreads(self._join)
        self._loop_has_ended = False
        self._transports: weakref.WeakSet[InProcessTransport] = weakref.WeakSet()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="gpulayer-control-plane", daemon=True)
        self._thread.start()
        try:
            self._control_plane = self._run(self._open_control_plane(), OPEN_SECONDS)
        except BaseException:
            self._end_loop()
            raise

    @classmethod
    def open(cls, home: Path) -> EmbeddedControlPlane:
        """The control plane of this home in this process, started if need be; it ends when the process does."""
        home = home.expanduser().resolve()
        with cls._open_lock:
            opened = cls._open.get(home)
            if opened is None:
                opened = cls._open[home] = cls(home)
                _end_with_the_process(opened.close)
            return opened

    def client(self, how: str = "") -> Client:
        """A client of it; `how` says how it was chosen."""
        return Client(self._transport(self._caller()), how=how, is_embedded=True)

    def worker_transport(self) -> InProcessTransport:
        """The way for one worker that joins."""
        return self._transport(self._caller())

    def close(self) -> None:
        """End the workers with their jobs, then the control plane. Later calls of its clients raise `Interrupted`.

        In a forked child it does nothing: loop, threads and workers are the parent's.
        """
        if os.getpid() != self._pid:
            return
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
        with self._open_lock:
            if self._open.get(self.home) is self:
                del self._open[self.home]
        try:
            self._workers.end()
            self._close_transports()
            self._run(self._control_plane.close(), CLOSE_SECONDS)
        except TimeoutError:
            _log.warning("The embedded control plane of %s did not close within %s s.", self.home, CLOSE_SECONDS)
        finally:
            self._end_loop()

    @classmethod
    def forget_in_child(cls) -> None:
        """After a fork: what the parent has open is not open here, and nobody here releases a lock that was held there."""
        cls._open.clear()
        cls._open_lock = threading.Lock()

    # ---- inside

    def _transport(self, caller: Caller) -> InProcessTransport:
        if self._closed:
            raise Interrupted("The embedded control plane of this process is closed.", asked=str(self.home))
        transport = InProcessTransport(
            self._control_plane, self._loop, caller, f"embedded control plane, home {self.home}", as_worker=_as_worker(caller)
        )
        with self._transports_lock:
            self._transports.add(transport)
        if self._loop_has_ended:
            transport.close()
        return transport

    def _close_transports(self) -> None:
        with self._transports_lock:
            transports = list(self._transports)
        for transport in transports:
            transport.close()

    async def _join(self, join_token: str) -> InProcessTransport:
        caller = await self._control_plane.authenticate(join_token)
        assert caller is not None, "the control plane made this token a moment ago"
        return self._transport(caller)

    @staticmethod
    def _caller() -> Caller:
        from gpulayer.control import Caller

        return Caller(role=Role.CLIENT, user=settings.os_user(), trusted=True)

    async def _open_control_plane(self) -> ControlPlane:
        from gpulayer.control import ControlPlane

        return await ControlPlane.open(self.home, local_workers=self._workers)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            # Whatever ended it: nothing in the loop will wake those who wait for its answers.
            self._loop_has_ended = True
            self._close_transports()

    def _run(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except concurrent.futures.CancelledError:
            raise Interrupted("The embedded control plane was closed meanwhile.", asked=str(self.home)) from None
        finally:
            future.cancel()

    def _end_loop(self) -> None:
        async def end_tasks() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self._loop.shutdown_default_executor()

        try:
            self._run(end_tasks(), CLOSE_SECONDS)
        except TimeoutError:
            _log.warning("Some work of the embedded control plane of %s did not end.", self.home)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_SECONDS)
            if not self._thread.is_alive():
                self._loop.close()


class _WorkerThreads:
    """The `LocalWorkers` of an embedded control plane: each worker's agent is a thread.

    Args:
        join: makes the way for the worker that holds this join token.
    """

    def __init__(self, join: Callable[[str], Awaitable[InProcessTransport]]) -> None:
        self._join = join
        self._lock = threading.Lock()
        self._agents: list[tuple[Agent, threading.Thread]] = []

    async def start(self, request: StartLocalWorkers, *, home: Path, join_tokens: list[str]) -> None:  # noqa: ARG002 - ours is that home
        """Start one agent for each token; called by the control plane, in its loop."""
        for token in join_tokens:
            self._start_one(request, await self._join(token))

    def interpreters(self, home: Path) -> list[str]:  # noqa: ARG002 - theirs is the one that this process runs on, unless one is asked for
        """None that would be better than this process's own."""
        return []

    def _start_one(self, request: StartLocalWorkers, transport: InProcessTransport) -> None:
        from gpulayer.worker.agent import Agent
        from gpulayer.worker.config import WorkerConfig

        with self._lock:
            config = WorkerConfig(
                name=f"local-{len(self._agents) + 1}",
                work_dir=settings.work_dir(),
                cpu_devices=request.cpu_devices,
                simulate=request.simulate_devices,
                python=request.python,
                address=None,
                local=True,
            )
            agent = Agent(transport, config)
            thread = threading.Thread(target=self._work, args=(agent, config.name), name=f"gpulayer-{config.name}", daemon=True)
            self._agents.append((agent, thread))
        thread.start()

    @staticmethod
    def _work(agent: Agent, name: str) -> None:
        try:
            agent.run()
        except Exception:  # noqa: BLE001 - top of a thread: the process goes on without this worker, and says so
            _log.exception("The embedded worker %s ended.", name)

    def end(self) -> None:
        """Stop every agent and wait for their ends; their jobs end with them."""
        with self._lock:
            agents, self._agents = self._agents, []
        stoppers = [threading.Thread(target=agent.stop, name="gpulayer-stop", daemon=True) for agent, _ in agents]
        for stopper in stoppers:
            stopper.start()
        for (_, thread), stopper in zip(agents, stoppers, strict=True):
            stopper.join(CLOSE_SECONDS)
            thread.join(CLOSE_SECONDS)
            if thread.is_alive():
                _log.warning("%s did not end within %s s; its jobs end with this process.", thread.name, CLOSE_SECONDS)


def _as_worker(caller: Caller) -> Callable[[WorkerId], Caller]:
    def speak_as(worker_id: WorkerId) -> Caller:
        return dataclasses.replace(caller, role=Role.WORKER, worker_id=worker_id, trusted=False, token_digest=None)

    return speak_as


def _end_with_the_process(close: Callable[[], None]) -> None:
    """Have `close` called at the end of the process, while threads can still be started.

    An atexit handler comes too late: `concurrent.futures` refuses work from the moment that the main thread has ended, and
    the control plane's last writes and reads go through it. `threading` has the hook that `concurrent.futures` itself uses;
    what was registered last is called first.
    """
    register = getattr(threading, "_register_atexit", atexit.register)
    register(close)


os.register_at_fork(after_in_child=EmbeddedControlPlane.forget_in_child)
