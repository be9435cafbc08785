"""The agent's side of the keeper: starts it, opens tasks in it, and hears how processes end.

Thread-safe; what the keepers say is read by one event thread. What a keeper is and guarantees stands in `keeper.py`, what
a task sees of it in `task_processes.py`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from gpulayer import settings
from gpulayer.errors import Interrupted
from gpulayer.runtime.event_thread import EventThread
from gpulayer.runtime.exit_reason import MemoryKills
from gpulayer.runtime.frames import FrameSocket
from gpulayer.runtime.rank_environment import is_scrubbed
from gpulayer.runtime.task_keeper_pool import TaskKeeperPool
from gpulayer.runtime.task_processes import ProcessExit, TaskProcesses

_CLOSE_SECONDS = 10.0
# With `-c` and not with `-P`, which jobs would find in their `sys.flags`: the working directory must not shadow a module,
# and what Python has loaded by itself is noted before anything else is.
KEEPER_PROGRAM = (
    "import sys; bare = frozenset(sys.modules); sys.path[:1 - sys.flags.safe_path] = []; import gpulayer.runtime.rank_main;"
    " rank = frozenset(sys.modules); from gpulayer.runtime.keeper import main; main(bare, rank)"
)


class TaskOpener(Protocol):
    """Where a task's processes can be started: a keeper, or a zygote below one."""

    python: str
    environment: dict[str, str]

    def open_task(self, on_exit: Callable[[ProcessExit], None], on_lost: Callable[[], None]) -> TaskProcesses:
        """Make room for one task's processes.

        Raises:
            Interrupted: there is none to be had here.
        """


class Keeper:
    """A running keeper, or the next one: when it has died, opening a task starts another.

    Args:
        python: the interpreter that it runs under, which must have GPUlayer.
        spares: how many task keepers are held ready, each with a parked interpreter: as many as tasks run at once.
    """

    def __init__(self, python: str, *, spares: int = 1) -> None:
        self.python = python
        self.thread = EventThread()
        """Reads what comes from this keeper, and whatever else its tasks have to wait for."""
        self.environment = _parked_environment()
        """What parked interpreters are started with."""
        self.memory_kills = MemoryKills.count()
        """What a task that ends before it has lasted goes by: how often memory ran out before any task here."""
        self._at_end: list[Callable[[], None]] = []
        self._pool = TaskKeeperPool(self.thread, self.environment, name="channel", spares=spares)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: FrameSocket | None = None
        self._folder: Path | None = None
        self._has_ended = False  # the process; its task keepers may still be at work on their end
        self._closed = False

    @classmethod
    def start(cls, python: str = sys.executable, *, spares: int = 1) -> Keeper:
        """Start a keeper; see the class for what it is told."""
        keeper = cls(python, spares=spares)
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
            for _ in range(2):
                self._ensure_started()
                try:
                    return self._pool.open_task(on_exit, on_lost)
                except ConnectionError:
                    self._has_ended = True  # it died a moment ago: once more, with another
        raise Interrupted("The keeper could not be started.")

    def call_at_end(self, call: Callable[[], None]) -> None:
        """Have this called, from the event thread, whenever the keeper's process has ended: what was below it is to end as well."""
        self._at_end.append(call)

    def open_zygote(self, modules: Sequence[str]) -> tuple[FrameSocket, Path]:
        """Have a zygote started below the keeper (`zygote.py`); returns the connection to it, and the folder for its channels.

        Raises:
            Interrupted: the keeper has been closed, or can't be started.
        """
        with self._lock:
            for _ in range(2):
                self._ensure_started()
                assert self._connection is not None
                assert self._folder is not None
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
                with theirs:
                    try:
                        argv = [self.python, "-c", KEEPER_PROGRAM]
                        self._connection.send({"op": "open_zygote", "argv": argv, "modules": list(modules)}, (theirs.fileno(),))
                        return FrameSocket(ours), self._folder
                    except ConnectionError:
                        ours.close()
                        self._has_ended = True
        raise Interrupted("The keeper could not be started.")

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

    def _ensure_started(self) -> None:
        if self._closed:
            raise Interrupted("This keeper has been closed.")
        if self._process is None or self._has_ended or self._process.poll() is not None:
            self._start()

    def _start(self) -> None:
        if self._process is not None:
            self._stop()
        if self._folder is None:
            # Under /tmp whatever TMPDIR says: a unix socket's path holds 107 bytes at most, 103 on macOS.
            self._folder = Path(tempfile.mkdtemp(prefix="gpulayer-", dir="/tmp"))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            # A session of its own: Ctrl-C is for the agent to pass on.
            self._process = subprocess.Popen(
                [self.python, "-c", KEEPER_PROGRAM, str(theirs.fileno()), str(os.getpid()), str(self._folder)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env=self.environment,
            )
        connection = FrameSocket(ours)
        self._connection = connection
        self._has_ended = False
        self.thread.add(connection, lambda: self._hear(connection))
        self._pool.connect(connection, self._folder)

    def _stop(self) -> None:
        assert self._process is not None
        assert self._connection is not None
        self._pool.disconnect()
        with contextlib.suppress(OSError):
            self._connection.send({"op": "close"})
        self._connection.shutdown()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._pool.wait_gone(_CLOSE_SECONDS)
        self.thread.remove(self._connection)
        self._connection.close()
        self._process = None

    # ---- event thread

    def _hear(self, connection: FrameSocket) -> None:
        if connection.receive(wait=False) is None:
            self._has_ended = self._has_ended or connection is self._connection
            self.thread.remove(connection)
            for call in self._at_end:
                call()


def _parked_environment() -> dict[str, str]:
    """The agent's, without what jobs must not see: a parked interpreter's memory is a job's later."""
    environment = {name: value for name, value in settings.inherited_environment().items() if not is_scrubbed(name)}
    environment.pop("PYTHONUNBUFFERED", None)  # a parked interpreter can be made unbuffered and not the reverse
    return environment
