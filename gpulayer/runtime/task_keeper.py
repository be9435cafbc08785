"""A task keeper: the subreaper of one task's processes, and the parent of the interpreter that is parked for the next task.

The keeper forks it (`keeper.py`); the agent holds the other end of its socket (`task_processes.py`). It serves one task at a
time, and another only when nothing of the last is left.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import socket
from typing import Any

from gpulayer.runtime.cold_start import unpack_failure
from gpulayer.runtime.frames import FrameSocket
from gpulayer.runtime.parked import Parked
from gpulayer.runtime.parked_site import ParkedSite
from gpulayer.runtime.process_tree import IS_LINUX, has_other_children, is_descendant
from gpulayer.runtime.supervisor import Supervisor, complain

_START_SECONDS = 10.0
"""A parked process takes a millisecond to become a job; where it has to, on a machine without memory, some more."""


class TaskKeeperProcess(Supervisor):
    """Starts, signals and ends the processes of one task at a time, and keeps a process parked for the next.

    Every process of a task starts from the parked one, which runs a Python program itself or becomes another: nothing is
    forked between the word to start and the start.
    """

    def __init__(self, connection: socket.socket, site: ParkedSite) -> None:
        super().__init__(connection)
        self._site = site
        self._groups: set[int] = set()  # what it started: each leads a process group of that number
        self._parked: int | None = None
        self._parked_connection: FrameSocket | None = None
        self._is_killing = False

    def run(self) -> None:
        """Park an interpreter, then serve."""
        if IS_LINUX:
            self._park()
        super().run()

    def handle(self, message: dict[str, Any], files: list[int]) -> None:
        match message["op"]:
            case "start":
                self._start(message, files)
            case "signal":
                self._signal(message["pid"], message["signal"], group=message["group"])
            case "end":
                self.kill_everything()
                self.tell("ended")

    def _start(self, message: dict[str, Any], files: list[int]) -> None:
        cold = None
        try:
            if len(files) != 2:  # the kernel drops those that come while this process has as many open as it may
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            if message["form"] is not None:
                cold = self._site.refuse(message)
            if cold is not None:
                message["form"] = None
            pid, verdict = self._unpark(message, files)
        except OSError as error:  # nothing else of the task is touched by it
            self.tell("start_failed", errno=error.errno or 0, at="a process for it")
            return
        finally:
            for file in files:
                os.close(file)
        if verdict:
            os.waitpid(pid, 0)
            number, at = unpack_failure(verdict)
            self.tell("start_failed", errno=number, at=at)
        else:
            self._groups.add(pid)
            self.tell("started", pid=pid, cold=cold)

    def _park(self) -> None:
        """Fork the next interpreter; where that is impossible it is tried again when one is wanted."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        parent = os.getpid()
        try:
            with theirs:
                pid = os.fork()
                if pid == 0:
                    ours.close()
                    self.abandon()
                    raise Parked(theirs.detach(), parent)
        except OSError as error:
            ours.close()
            complain(f"no parked interpreter: {error}")
            return
        self._parked, self._parked_connection = pid, FrameSocket(ours)

    def _unpark(self, message: dict[str, Any], files: list[int]) -> tuple[int, bytes]:
        """Turn the parked interpreter into the job.

        Returns:
            The process's id, and what kept it from becoming that: nothing where it runs.
        """
        for _ in range(3):
            if self._parked is None:
                self._park()
            if self._parked is None or self._parked_connection is None:
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            pid, connection = self._parked, self._parked_connection
            self._forget_parked()
            try:
                connection.send(message, files)
            except OSError:  # it has died: another
                connection.close()
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
                continue
            connection.set_timeout(_START_SECONDS)
            try:
                verdict = connection.read_rest()
            except TimeoutError:  # it has been stopped by somebody: another
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                continue
            finally:
                connection.close()
            return pid, verdict
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def _forget_parked(self) -> None:
        self._parked = self._parked_connection = None

    def _signal(self, pid: int, number: int, *, group: bool) -> None:
        # Looked at directly before the signal: a number that has passed on to a stranger is left alone.
        if not IS_LINUX or is_descendant(pid, os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if group else os.kill)(pid, number)

    def child_ended(self, pid: int, code: int, usage: resource.struct_rusage, *, has_others: bool) -> None:
        if pid == self._parked:
            if self._parked_connection is not None:
                self._parked_connection.close()
            self._forget_parked()
            return
        # ru_maxrss is in KiB on Linux and in bytes on macOS.
        peak_bytes = usage.ru_maxrss * (1024 if IS_LINUX else 1)
        is_last = not self._is_killing and IS_LINUX
        if is_last and has_others:
            is_last = self._parked is not None and not has_other_children(self._parked)
        self.tell("exited", pid=pid, code=code, peak_bytes=peak_bytes, is_last=is_last)
        if is_last:
            self._groups.clear()
            if self._parked is None:
                self._park()

    def abandon(self) -> None:
        super().abandon()
        if self._parked_connection is not None:
            self._parked_connection.close()

    def kill_everything(self) -> None:
        self._is_killing = True  # what ends from here on leaves no room for another task
        if self._parked is not None:
            # Known to have nothing below it, so nothing has to be looked for.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._parked, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._parked, 0)
            self._forget_parked()
        if not IS_LINUX:
            for group in self._groups:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)
        super().kill_everything()
