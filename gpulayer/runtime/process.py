"""The agent's side of the keeper: starts it, opens tasks in it, and hears how processes end.

Thread-safe; what the keepers say is read by one event thread. What a keeper is and guarantees stands in `keeper.py`, what
a task sees of it in `task_processes.py`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from gpulayer import settings
from gpulayer.errors import Interrupted
from gpulayer.runtime.channel import Channel
from gpulayer.runtime.event_thread import EventThread
from gpulayer.runtime.exit_reason import MemoryKills
from gpulayer.runtime.frames import FrameSocket
from gpulayer.runtime.rank_environment import is_scrubbed
from gpulayer.runtime.task_keeper_link import TaskKeeperLink
from gpulayer.runtime.task_processes import ProcessExit, TaskProcesses

_log = logging.getLogger(__name__)

_CLOSE_SECONDS = 10.0
# With `-c` and not with `-P`, which jobs would find in their `sys.flags`: the working directory must not shadow a module,
# and what Python has loaded by itself is noted before anything else is.
_PROGRAM = (
    "import sys; bare = frozenset(sys.modules); sys.path[:1 - sys.flags.safe_path] = []; import gpulayer.runtime.rank_main;"
    " rank = frozenset(sys.modules); from gpulayer.runtime.keeper import main; main(bare, rank)"
)


class Keeper:
    """A running keeper, or the next one: when it has died, opening a task starts another.

    Args:
        python: the interpreter that it runs under, which must have GPUlayer.
        spares: how many task keepers are held ready, each with a parked interpreter: as many as tasks run at once.
        preload: modules that parked interpreters have loaded.
    """

    def __init__(self, python: str, *, spares: int = 1, preload: Sequence[str] = ()) -> None:
        self.python = python
        self.thread = EventThread()
        """Reads what comes from this keeper, and whatever else its tasks have to wait for."""
        self.environment = _parked_environment()
        """What parked interpreters are started with."""
        self.memory_kills = MemoryKills.count()
        """What a task that ends before it has lasted goes by: how often memory ran out before any task here."""
        self.preload_refused: str | None = None
        """The module after whose import no process could be parked, and why; nothing is preloaded then."""
        self._spares = spares
        self._preload = tuple(preload)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: FrameSocket | None = None
        self._folder: Path | None = None
        self._has_ended = False  # the process; its task keepers may still be at work on their end
        self._closed = False
        # Of their own, since the event thread takes it: it must not wait while a keeper is started or stopped.
        self._changed = threading.Condition()
        self._task_keepers: set[TaskKeeperLink] = set()
        self._idle: deque[TaskKeeperLink] = deque()
        self._channels = 0
        _keepers.add(self)

    @classmethod
    def start(cls, python: str = sys.executable, *, spares: int = 1, preload: Sequence[str] = ()) -> Keeper:
        """Start a keeper; see the class for what it is told."""
        keeper = cls(python, spares=spares, preload=preload)
        with keeper._lock:
            keeper._start()
        return keeper

    @property
    def pid(self) -> int | None:
        """The keeper's process, or None when it is not running."""
        with self._lock:
            return self._process.pid if self._process is not None and self._process.poll() is None else None

    def open_task(self, on_exit: Callable[[ProcessExit], None], on_lost: Callable[[], None]) -> TaskProcesses:
        """Make room for one task's processes; see `TaskProcesses` for the callbacks.

        Raises:
            Interrupted: the keeper has been closed, or can't be started.
        """
        with self._lock:
            task_keeper = self._take_task_keeper()
            task = TaskProcesses(task_keeper, self.thread, on_exit, on_lost, lambda: self._give_back(task_keeper, task))
            with self._changed:
                task_keeper.task = task
                is_lost = task_keeper not in self._task_keepers
        if is_lost:
            task.lose()
        return task

    def close(self) -> None:
        """End the keeper and everything that it started, and wait until all of it is gone."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._stop()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None
        self.thread.close()

    # ---- the keeper's process

    def _take_task_keeper(self) -> TaskKeeperLink:
        if self._closed:
            raise Interrupted("This keeper has been closed.")
        for _ in range(2):
            if self._process is None or self._has_ended or self._process.poll() is not None:
                self._start()
            with self._changed:
                if self._idle:
                    return self._idle.popleft()
            try:
                return self._open_task_keeper()
            except ConnectionError:
                self._has_ended = True  # it died a moment ago: once more, with another
        raise Interrupted("The keeper could not be started.")

    def _open_task_keeper(self) -> TaskKeeperLink:
        assert self._connection is not None
        assert self._folder is not None
        self._channels += 1
        with contextlib.ExitStack() as made:
            channel = Channel(self.thread, self._folder / f"channel-{self._channels}")
            made.callback(channel.close)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            made.callback(ours.close)
            with theirs:
                self._connection.send({"op": "open_task"}, (theirs.fileno(),))
            made.pop_all()
        task_keeper = TaskKeeperLink(FrameSocket(ours), channel, self.environment)
        with self._changed:
            self._task_keepers.add(task_keeper)
        self.thread.add(task_keeper.connection, lambda: self._hear_task_keeper(task_keeper))
        return task_keeper

    def _refill(self) -> None:
        """Hold as many spares as there should be."""
        while not self._closed and not self._has_ended:
            with self._changed:
                if len(self._idle) >= self._spares:
                    return
            try:
                spare = self._open_task_keeper()
            except OSError as error:  # a task that needs one says so itself
                _log.warning("no spare task keeper: %s", error)
                return
            with self._changed:
                if spare in self._task_keepers:
                    self._idle.append(spare)

    def _start(self) -> None:
        if self._process is not None:
            self._stop()
        if self._folder is None:
            # Under /tmp whatever TMPDIR says: a unix socket's path holds 107 bytes at most, 103 on macOS.
            self._folder = Path(tempfile.mkdtemp(prefix="gpulayer-", dir="/tmp"))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        modules = () if self.preload_refused is not None else self._preload
        with theirs:
            # A session of its own: Ctrl-C is for the agent to pass on.
            self._process = subprocess.Popen(
                [self.python, "-c", _PROGRAM, str(theirs.fileno()), str(os.getpid()), str(self._folder), *modules],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env=self.environment,
            )
        connection = FrameSocket(ours)
        self._connection = connection
        self._has_ended = False
        self.thread.add(connection, lambda: self._hear_keeper(connection))
        self._refill()

    def _stop(self) -> None:
        assert self._process is not None
        assert self._connection is not None
        with self._changed:
            self._idle.clear()
        with contextlib.suppress(OSError):
            self._connection.send({"op": "close"})
        self._connection.shutdown()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with self._changed:
            self._changed.wait_for(lambda: not self._task_keepers, _CLOSE_SECONDS)
        self.thread.remove(self._connection)
        self._connection.close()
        self._process = None

    # ---- event thread

    def _hear_keeper(self, connection: FrameSocket) -> None:
        messages = connection.receive(wait=False)
        for message, _ in messages or ():
            if message["event"] == "preload_refused":
                self.preload_refused = message["why"]
                _log.warning("interpreters are parked without what was to be preloaded: %s", message["why"])
        if messages is None:
            self._has_ended = self._has_ended or connection is self._connection
            self.thread.remove(connection)

    def _hear_task_keeper(self, task_keeper: TaskKeeperLink) -> None:
        try:
            if task_keeper.receive():
                return
        except Exception:  # noqa: BLE001 - one task's fault, and the others are still to be heard
            _log.exception("what a task's keeper says could not be handled; its processes are given up")
        self.thread.remove(task_keeper.connection)
        task_keeper.connection.close()
        task_keeper.channel.close()
        task_keeper.lose()
        with self._changed:
            task = task_keeper.task
            self._task_keepers.discard(task_keeper)
            with contextlib.suppress(ValueError):
                self._idle.remove(task_keeper)
            self._changed.notify_all()
        if task is not None:
            task.lose()

    # ---- a task's own thread

    def _give_back(self, task_keeper: TaskKeeperLink, task: TaskProcesses) -> None:
        """A task is through: its keeper serves another if it has nothing left of this one."""
        is_free = False
        try:
            is_free = task_keeper.channel.rest() and task.is_empty and not task_keeper.is_stuck
        finally:
            if not (is_free and self._keep(task_keeper)):
                task_keeper.connection.shutdown()
                with self._lock:
                    self._refill()

    def _keep(self, task_keeper: TaskKeeperLink) -> bool:
        """Make it a spare; False where there are enough, or it is gone."""
        with self._changed:
            if self._closed or task_keeper not in self._task_keepers or len(self._idle) >= self._spares:
                return False
            task_keeper.task = None
            self._idle.append(task_keeper)
            return True

    def forget_in_child(self) -> None:
        """In a process that the agent's has forked: hold no end of a keeper's connections open."""
        if self._connection is not None:
            self._connection.close()
        for task_keeper in tuple(self._task_keepers):
            task_keeper.connection.close()
            task_keeper.close_parked()


_keepers: weakref.WeakSet[Keeper] = weakref.WeakSet()


def _forget_in_child() -> None:
    for keeper in _keepers:
        keeper.forget_in_child()


os.register_at_fork(after_in_child=_forget_in_child)


def _parked_environment() -> dict[str, str]:
    """The agent's, without what jobs must not see: a parked interpreter's memory is a job's later."""
    environment = {name: value for name, value in settings.inherited_environment().items() if not is_scrubbed(name)}
    environment.pop("PYTHONUNBUFFERED", None)  # a parked interpreter can be made unbuffered and not the reverse
    return environment
