"""The processes of one task, behind the task keeper that serves it. Runs in the agent.

Commands go out from the task's thread; answers and ends come in on the event thread of `process.Keeper`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpulayer.errors import Interrupted
from gpulayer.runtime.frames import FrameSocket

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
        connection: to its task keeper.
        on_exit: called from the event thread for every process that ends as a child of the task keeper.
        on_lost: called from there when the task keeper is gone, expected or not; everything of the task is gone with it.
        give_back: hands the task keeper back.
    """

    def __init__(
        self,
        connection: FrameSocket,
        on_exit: Callable[[ProcessExit], None],
        on_lost: Callable[[], None],
        give_back: Callable[[], None],
    ) -> None:
        self.is_empty = True
        """Nothing of the task is alive, and nothing can come back to life: there is nothing to end."""
        self.cold_reason: str | None = None
        """Why the last process did not start in a parked interpreter though it was asked for."""
        self._connection = connection
        self._on_exit = on_exit
        self._on_lost = on_lost
        self._give_back = give_back
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
        form: str | None = None,
        executable: str = "",
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
            form: what a parked interpreter is to make of the command (`warm_start`); None starts a new program.
            executable: what `sys.executable` is there.

        Raises:
            StartFailed: naming what failed and why.
            Interrupted: the keeper is gone.
        """
        message = {
            "op": "start",
            "argv": list(argv),
            "cwd": cwd,
            "env": dict(env),
            "umask": umask,
            "limits": dict(limits or {}),
            "form": form,
            "executable": executable,
        }
        self.is_empty = False
        answer = self._ask(message, (stdout, stderr))
        if answer["event"] == "start_failed":
            raise StartFailed(f"{answer['at']}: {os.strerror(answer['errno'])}")
        self.cold_reason = answer["cold"]
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
        """Be done with the task keeper; it kills what is left."""
        self._give_back()

    def _tell(self, message: dict[str, Any], files: Sequence[int] = ()) -> None:
        # When the keeper is gone, `on_lost` says so; nothing is left to be told.
        with contextlib.suppress(OSError):
            self._connection.send(message, files)

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

    # ---- event thread

    def hear(self, message: dict[str, Any]) -> None:
        """Take in what the task keeper says."""
        match message["event"]:
            case "ending":
                self._ending = True
            case "exited":
                if self._ending:
                    return
                code = message["code"]
                self.is_empty = message["is_last"]
                self._on_exit(
                    ProcessExit(
                        pid=message["pid"],
                        exit_code=code if code >= 0 else None,
                        signal=-code if code < 0 else None,
                        peak_bytes=message["peak_bytes"],
                    )
                )
            case _:
                if message["event"] == "started":
                    self.is_empty = False
                self._answers.put(message)

    def lose(self) -> None:
        """Note that the task keeper is gone."""
        self._lost.set()
        self._answers.put(None)
        self._on_lost()
