"""The agent's side of the keeper: starts it, opens tasks in it, and hears how processes end.

Thread-safe; one reader thread per keeper. What a keeper is and guarantees stands in `keeper.py`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpulayer.errors import Interrupted
from gpulayer.runtime.frames import FrameSocket

_log = logging.getLogger(__name__)

_END_SECONDS = 10.0  # a process in uninterruptible sleep outlives SIGKILL; the agent must not wait for it for ever
_CLOSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """How a process ended. One of `exit_code` and `signal` is None."""

    pid: int
    exit_code: int | None
    signal: int | None
    peak_bytes: int | None = None
    """The most memory it held, where the kernel says so."""


class StartFailed(Exception):
    """The program could not be started; the message says what and why."""


class TaskProcesses:
    """The processes of one task, behind a task keeper of their own.

    Args:
        connection: this end of the socket pair; the task keeper holds the other.
        on_exit: called from the keeper's reader thread for every process that ends as a child of the task keeper.
        on_lost: called from there when the task keeper is gone, expected or not; everything of the task is gone with it.
    """

    def __init__(self, connection: FrameSocket, on_exit: Callable[[ProcessExit], None], on_lost: Callable[[], None]) -> None:
        self.connection = connection
        self._on_exit = on_exit
        self._on_lost = on_lost
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._lost = threading.Event()
        self._ending = False  # the task keeper kills what it has; `on_lost` follows when it is done

    def start_process(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdout: int,
        stderr: int,
        umask: int = 0o077,
        limits: Mapping[str, tuple[int, int]] | None = None,
    ) -> int:
        """Start a process in a session of its own and return its id; stdin is empty.

        Args:
            argv: the command, looked up in the PATH of `env`.
            cwd: its working directory.
            env: its whole environment.
            stdout: an open file, duplicated into it.
            stderr: the same.
            umask: 0o077 keeps what a job writes from other users of the machine.
            limits: resource limits by name (`RLIMIT_CORE`), as (soft, hard).

        Raises:
            StartFailed: naming what failed and why.
            Interrupted: the keeper is gone.
        """
        message = {"op": "start", "argv": list(argv), "cwd": cwd, "env": dict(env), "umask": umask, "limits": dict(limits or {})}
        answer = self._ask(message, (stdout, stderr))
        if answer["event"] == "start_failed":
            raise StartFailed(f"{answer['at']}: {os.strerror(answer['errno'])}")
        return int(answer["pid"])

    def signal(self, pid: int, number: int, *, group: bool = False) -> None:
        """Send a signal to a process of this task, or to its whole process group; others are never touched."""
        self._tell({"op": "signal", "pid": pid, "signal": int(number), "group": group})

    def end(self) -> bool:
        """Kill whatever is left of the task and wait for it; False if something could not be killed in time."""
        try:
            self._ask({"op": "end"}, timeout=_END_SECONDS)
        except Interrupted:
            return self._lost.is_set()
        return True

    def close(self) -> None:
        """Let the task keeper go; it kills what is left."""
        self.connection.shutdown()

    def _tell(self, message: dict[str, Any], files: Sequence[int] = ()) -> None:
        # When the keeper is gone, `on_lost` says so; nothing is left to be told.
        with contextlib.suppress(OSError):
            self.connection.send(message, files)

    def _ask(self, message: dict[str, Any], files: Sequence[int] = (), timeout: float | None = None) -> dict[str, Any]:
        self._tell(message, files)
        if self._lost.is_set():
            raise Interrupted("The keeper of this task is gone.")
        try:
            answer = self._answers.get(timeout=timeout)
        except queue.Empty:
            answer = None
        if answer is None:
            raise Interrupted("The keeper of this task did not answer.")
        return answer

    def receive(self) -> bool:
        """Handle what has arrived (reader thread); False when the task keeper is gone."""
        messages = self.connection.receive()
        if messages is None:
            return False
        for message, _ in messages:
            if message["event"] == "ending":
                self._ending = True
            elif message["event"] == "exited":
                if self._ending:
                    continue
                code = message["code"]
                self._on_exit(
                    ProcessExit(
                        pid=message["pid"],
                        exit_code=code if code >= 0 else None,
                        signal=-code if code < 0 else None,
                        peak_bytes=message["peak_bytes"],
                    )
                )
            else:
                self._answers.put(message)
        return True

    def lose(self) -> None:
        """Note that the task keeper is gone (reader thread)."""
        self._lost.set()
        self._answers.put(None)
        self.connection.close()
        self._on_lost()


class Keeper:
    """A running keeper, or the next one: when it has died, opening a task starts another."""

    def __init__(self, python: str) -> None:
        self._python = python
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: FrameSocket | None = None
        self._reader: _Reader | None = None
        self._closed = False

    @classmethod
    def start(cls, python: str = sys.executable) -> Keeper:
        """Start a keeper that runs under this interpreter, which must have GPUlayer."""
        keeper = cls(python)
        with keeper._lock:
            keeper._start()
        return keeper

    @property
    def pid(self) -> int | None:
        """The keeper's process, or None when it is not running."""
        with self._lock:
            return self._process.pid if self._process is not None and self._process.poll() is None else None

    def open_task(
        self, on_exit: Callable[[ProcessExit], None], on_lost: Callable[[], None], *, folder: Path | None = None
    ) -> TaskProcesses:
        """Make room for one task's processes; see `TaskProcesses` for the callbacks.

        Args:
            on_exit: a process has ended.
            on_lost: the task keeper is gone.
            folder: removed when the task keeper ends, for the case that this process can't do it any more.

        Raises:
            Interrupted: the keeper has been closed.
        """
        message = {"op": "open_task", "folder": str(folder) if folder is not None else None}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        task = TaskProcesses(FrameSocket(ours), on_exit, on_lost)
        with theirs, self._lock:
            if self._closed:
                ours.close()
                raise Interrupted("This keeper has been closed.")
            for _ in range(2):
                if self._process is None or self._process.poll() is not None or self._reader is None or self._reader.ended:
                    self._start()
                assert self._connection is not None
                assert self._reader is not None
                try:
                    self._connection.send(message, (theirs.fileno(),))
                except OSError:
                    self._reader.ended = True  # it died a moment ago: once more, with another
                    continue
                self._reader.add(task)
                return task
        ours.close()
        raise Interrupted("The keeper could not be started.")

    def close(self) -> None:
        """End the keeper and everything that it started, and wait until all of it is gone."""
        with self._lock:
            self._closed = True
            if self._process is None:
                return
            self._stop()

    def _start(self) -> None:
        if self._process is not None:
            self._stop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            # -P: the working directory must not shadow a module. A session of its own: Ctrl-C is for the agent to pass on.
            self._process = subprocess.Popen(
                [self._python, "-P", "-m", "gpulayer.runtime.keeper", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._connection = FrameSocket(ours)
        self._reader = _Reader(self._connection)

    def _stop(self) -> None:
        assert self._process is not None
        assert self._connection is not None
        assert self._reader is not None
        self._connection.shutdown()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._connection.close()
        self._process = None


class _Reader:
    """Reads what a keeper and its task keepers say, in one thread that ends with the last of them."""

    def __init__(self, keeper: FrameSocket) -> None:
        self.ended = False
        """The keeper is gone; its task keepers may still be at work on their end."""
        self._keeper = keeper
        self._finished = False
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._selector.register(keeper, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="gpulayer-keeper", daemon=True)
        self._thread.start()

    def add(self, task: TaskProcesses) -> None:
        # An epoll that is being waited on takes new entries; so does a kqueue.
        with self._lock:
            if not self._finished:
                self._selector.register(task.connection, selectors.EVENT_READ, task)
                return
        task.lose()

    def join(self) -> None:
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._selector.get_map():
                    self._finished = True
                    break
            for key, _ in self._selector.select():
                if not self._read(key.data):
                    self._selector.unregister(key.fileobj)
                    self._lose(key.data)
        self._selector.close()

    def _read(self, task: TaskProcesses | None) -> bool:
        """False when what was to be read from is gone; None is the keeper itself."""
        try:
            return self._keeper.receive() is not None if task is None else task.receive()
        except Exception:  # noqa: BLE001 - the top of this thread: one task's fault, and the others are still to be heard
            _log.exception("what a keeper says could not be handled; its processes are given up")
            return False

    def _lose(self, task: TaskProcesses | None) -> None:
        if task is None:
            self.ended = True
            return
        try:
            task.lose()
        except Exception:  # noqa: BLE001 - as above
            _log.exception("the loss of a task's keeper could not be handled")
