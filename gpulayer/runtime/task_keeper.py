"""A task keeper: the subreaper of one task's processes, and the parent of those that are parked for it.

The keeper forks it (`keeper.py`); the agent holds the other end of its socket (`task_keeper_link.py`). It serves one task at a
time, and another only when nothing of the last is left.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
from typing import Any

from gpulayer.runtime.parked import Parked
from gpulayer.runtime.parked_site import ParkedSite
from gpulayer.runtime.process_tree import IS_LINUX, has_other_children, is_descendant
from gpulayer.runtime.supervisor import Supervisor


class TaskKeeperProcess(Supervisor):
    """Parks, signals and ends the processes of one task at a time.

    Every process of a task starts from a parked one, which the agent itself tells what to become: nothing is forked between that
    word and the start, and this process is not asked. It knows a parked process from a job only by its end.
    """

    def __init__(self, connection: socket.socket, site: ParkedSite, *, parks: int) -> None:
        super().__init__(connection)
        self._site = site
        self._parks = parks if IS_LINUX else 0  # how many it has ready when nothing else is there
        self._forked: set[int] = set()  # parked, or jobs by now; those that are alive
        self._groups: set[int] = set()  # each that was forked leads a process group of its number
        self._is_killing = False

    def run(self) -> None:
        """Park what a task may need, then serve."""
        self._park(self._parks)
        super().run()

    def handle(self, message: dict[str, Any], files: list[int]) -> None:
        del files
        match message["op"]:
            case "park":
                self._park(message["count"])
            case "signal":
                self._signal(message["pid"], message["signal"], group=message["group"])
            case "end":
                self.kill_everything()
                self.tell("ended")

    def _park(self, count: int) -> None:
        """Fork interpreters and hand the agent the connections to them."""
        if count:
            self._site.look()  # what is found here need not be found anew in each
        for _ in range(count):
            self._park_one()

    def _park_one(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        parent = os.getpid()
        with ours:
            try:
                with theirs:
                    pid = os.fork()
                    if pid == 0:
                        ours.close()
                        self.abandon()
                        raise Parked(theirs.detach(), parent, self._site)
            except OSError as error:  # the limit of processes or memory is reached
                self.tell("park_failed", errno=error.errno)
                return
            self._forked.add(pid)
            self._groups.add(pid)
            self.tell("parked", (ours.fileno(),), pid=pid)

    def _signal(self, pid: int, number: int, *, group: bool) -> None:
        # Looked at directly before the signal: a number that has passed on to a stranger is left alone.
        if not IS_LINUX or is_descendant(pid, os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if group else os.kill)(pid, number)

    def child_ended(self, pid: int, code: int, usage: resource.struct_rusage, *, has_others: bool) -> None:
        self._forked.discard(pid)
        # What is left of one that is being killed is not looked for: it serves no other task.
        has_others = not IS_LINUX or self._is_killing or (has_others and has_other_children(self._forked))
        parks = 0 if has_others or self._forked else self._parks
        # ru_maxrss is in KiB on Linux and in bytes on macOS.
        peak_bytes = usage.ru_maxrss * (1024 if IS_LINUX else 1)
        self.tell("exited", pid=pid, code=code, peak_bytes=peak_bytes, has_others=has_others, parks=parks)
        if parks:
            self._groups.clear()
            self._park(parks)

    def kill_everything(self) -> None:
        self._is_killing = True  # what ends from here on leaves no room for another task
        if not IS_LINUX:
            for group in self._groups:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)
        super().kill_everything()
