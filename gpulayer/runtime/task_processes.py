"""The processes of one task, behind the task keeper that serves it. Runs in the agent.

Each is told what to become by the task's thread; ends come in on the event thread of `process.Keeper`.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpulayer.runtime.channel import Channel
from gpulayer.runtime.event_thread import EventThread
from gpulayer.runtime.frames import FrameSocket
from gpulayer.runtime.task_keeper_link import TaskKeeperLink

START_SECONDS = 10.0
"""A parked process takes a millisecond to become a job; where it has to, on a machine without memory, some more."""
_MOST_PARKED_TRIED = 3
_END_SECONDS = 10.0  # a process in uninterruptible sleep outlives SIGKILL; the agent must not wait for it for ever


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
    """What one task has running.

    Args:
        link: to its task keeper.
        thread: hears, beside it, how a start goes.
        on_exit: called from the event thread for every process that ends as a child of the task keeper.
        on_lost: called from there when the task keeper is gone, expected or not; everything of the task is gone with it.
        give_back: hands the task keeper back.
    """

    def __init__(
        self,
        link: TaskKeeperLink,
        thread: EventThread,
        on_exit: Callable[[ProcessExit], None],
        on_lost: Callable[[], None],
        give_back: Callable[[], None],
    ) -> None:
        self.cold_reasons: dict[int, str] = {}
        """By process, why it did not become what it was asked to in its parked interpreter."""
        self._link = link
        self._thread = thread
        self._on_exit = on_exit
        self._on_lost = on_lost
        self._give_back = give_back
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._has_others = False  # descendants that it did not start itself were there at the last end of a process
        self._starting: dict[int, FrameSocket] = {}
        self._watched: set[int] = set()
        self._ended = threading.Event()
        self._ending = False  # the task keeper kills what it has; `on_lost` follows when it is done

    @property
    def channel(self) -> Channel:
        """Where they report; at rest again once the task keeper is given back."""
        return self._link.channel

    @property
    def is_empty(self) -> bool:
        """Nothing of the task is alive, and nothing can come back to life: there is nothing to end."""
        return not (self._running or self._has_others)

    @property
    def is_lost(self) -> bool:
        """The task keeper is gone, and all of the task with it."""
        return self._link.is_lost

    def wait_parked(self) -> None:
        """Wait until a process can be launched.

        Raises:
            OSError: none could be forked.
            Interrupted: the keeper is gone.
        """
        self._link.wait_parked()

    def launch(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdout: int,
        stderr: int,
        umask: int = 0o077,
        limits: Mapping[str, tuple[int, int]] | None = None,
        form: str | None = None,
        executable: str = "",
        files: Mapping[str, int] | None = None,
    ) -> int:
        """Start a process in a session of its own and return its id; stdin is empty.

        It does not wait for the start: `is_started` and `when_started` tell how that goes.

        Args:
            argv: the command, looked up in the PATH of `env`.
            cwd: its working directory.
            env: its whole environment.
            stdout: an open file, duplicated into it.
            stderr: the same.
            umask: 0o077 keeps what a job writes from other users of the machine.
            limits: resource limits by name (`RLIMIT_CORE`), as (soft, hard).
            form: what a parked interpreter is to make of the command (`warm_start`); None starts a new program.
            executable: what `sys.executable` is there.
            files: more open files that it is to have, duplicated into it; its environment has the number of each under this name.

        Raises:
            StartFailed: no process is to be had.
            Interrupted: the keeper is gone.
        """
        inherits, env = self._link.without_inherited(env)
        message = {
            "argv": list(argv),
            "cwd": cwd,
            "env": env,
            "inherits": inherits,
            "umask": umask,
            "limits": dict(limits or {}),
            "form": form,
            "executable": executable,
            "files": list(files or ()),
        }
        for _ in range(_MOST_PARKED_TRIED):
            try:
                parked = self._link.take_parked()
            except OSError as error:
                raise StartFailed(f"a process for it: {error.strerror}") from error
            with self._lock:
                self._running.add(parked.pid)
                self._starting[parked.pid] = parked.connection
            # More than fits into the socket waits for a reader, who may have been stopped: nothing is heard here meanwhile.
            parked.connection.set_timeout(START_SECONDS)
            try:
                parked.connection.send(message, (stdout, stderr, *(files or {}).values()))
                parked.connection.set_timeout(None)
            except TimeoutError as error:  # it counts as running, so that it is ended
                raise StartFailed(
                    f"the process for it has not read what to become within {START_SECONDS:g} s, as if somebody had stopped it"
                ) from error
            except OSError:  # somebody has killed it: another
                with self._lock:
                    self._running.discard(parked.pid)
                    del self._starting[parked.pid]
                self._link.give_up(parked)
            else:
                return parked.pid
        raise StartFailed("a process for it: each that was parked had been killed")

    def expect(self, count: int) -> None:
        """Have so many parked processes on their way before the first of them is launched."""
        self._link.park(count)

    def is_started(self, pid: int) -> bool:
        """Whether a process that was launched runs as it was asked to, or has run; False while it is not known yet.

        Raises:
            StartFailed: naming what failed and why; the process is gone.
        """
        connection = self._starting.get(pid)
        if connection is None:
            return True
        while (messages := connection.receive(wait=False)) is not None:
            if not messages:
                return False
            for message, _ in messages:
                if message["event"] == "failed":
                    self._forget_start(pid)
                    raise StartFailed(f"{message['at']}: {os.strerror(message['errno'])}")
                self.cold_reasons[pid] = message["why"]
        self._forget_start(pid)
        if connection.was_reset:
            raise StartFailed("it was killed before it began")
        return True

    def when_started(self, pid: int, call: Callable[[], None]) -> None:
        """Have this called once, from the event thread, when `is_started` has more to say than it had."""
        connection = self._starting.get(pid)
        if connection is None:
            call()
            return

        def hear() -> None:
            self._thread.remove(connection)
            self._watched.discard(pid)
            call()

        self._watched.add(pid)
        self._thread.add(connection, hear)

    def start_process(self, argv: Sequence[str], **options: Any) -> int:
        """As `launch`, and wait until it runs.

        Raises:
            StartFailed: naming what failed and why.
            Interrupted: the keeper is gone.
        """
        pid = self.launch(argv, **options)
        told = threading.Event()
        while not self.is_started(pid):
            told.clear()
            self.when_started(pid, told.set)
            if not told.wait(START_SECONDS):
                raise StartFailed(f"the process took longer than {START_SECONDS:g} s to start")
        return pid

    def signal(self, pid: int, number: int, *, group: bool = False) -> None:
        """Send a signal to a process of this task, or to its whole process group; others are never touched."""
        self._tell({"op": "signal", "pid": pid, "signal": int(number), "group": group})

    def end(self) -> bool:
        """Kill whatever is left of the task and wait for it; False if something could not be killed in time."""
        self._tell({"op": "end"})
        return self._ended.wait(_END_SECONDS)

    def close(self) -> None:
        """Be done with the task keeper; it kills what is left."""
        for pid in list(self._starting):
            self._forget_start(pid)
        self._give_back()

    def _forget_start(self, pid: int) -> None:
        connection = self._starting.pop(pid)
        if pid in self._watched:
            self._thread.remove(connection)
        connection.close()

    def _tell(self, message: dict[str, Any]) -> None:
        # When the keeper is gone, `on_lost` says so; nothing is left to be told.
        with contextlib.suppress(OSError):
            self._link.connection.send(message)

    # ---- event thread

    def hear(self, message: dict[str, Any]) -> None:
        """Take in what the task keeper says."""
        match message["event"]:
            case "ending":
                self._ending = True
            case "ended":
                self._ended.set()
            case "exited" if not self._ending:
                with self._lock:
                    self._has_others = message["has_others"]
                    self._running.discard(message["pid"])
                code = message["code"]
                self._on_exit(
                    ProcessExit(
                        pid=message["pid"],
                        exit_code=code if code >= 0 else None,
                        signal=-code if code < 0 else None,
                        peak_bytes=message["peak_bytes"],
                    )
                )

    def lose(self) -> None:
        """Note that the task keeper is gone."""
        self._ended.set()
        self._on_lost()
