"""The agent's end of one task keeper: what is parked there, and the task that it serves. Runs in the agent.

What the task keeper says comes in on the event thread of `process.Keeper`; a parked process is taken from the task's thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from gpulayer.errors import Interrupted
from gpulayer.runtime.channel import Channel
from gpulayer.runtime.frames import FrameSocket
from gpulayer.runtime.process_tree import IS_LINUX

_PARK_SECONDS = 10.0
"""A fork takes less than a millisecond; on a machine without memory, some more."""


class ParkedProcess(NamedTuple):
    """A process that waits to be told what to become."""

    pid: int
    connection: FrameSocket


class Task(Protocol):
    """What a task keeper serves."""

    def hear(self, message: dict[str, Any]) -> None:
        """Take in what the task keeper says."""

    def lose(self) -> None:
        """The task keeper is gone, and with it all that it had."""


class TaskKeeperLink:
    """The connection to one task keeper.

    Args:
        connection: to a task keeper that has just been asked for.
        channel: where the processes of its tasks report.
        environment: what is parked there has.
        parked: how many it parks as it starts, and should have at the start of each task.
    """

    def __init__(self, connection: FrameSocket, channel: Channel, environment: Mapping[str, str], *, parked: int = 1) -> None:
        self.connection = connection
        self.channel = channel
        self.generation = 0
        """Of which process's forks it is, for whoever holds several."""
        self._wanted = parked if IS_LINUX else 0
        self._environment = list(environment.items())
        self.task: Task | None = None
        """None while it is a spare."""
        self.is_stuck = False
        """It has not parked a process when it should have: it serves no other task."""
        self._changed = threading.Condition()
        self._parked: deque[ParkedProcess] = deque()
        self._coming = self._wanted  # parked processes that are not here yet
        self._refusal: int | None = None
        self._is_lost = False
        self._given_up: set[int] = set()

    def take_parked(self) -> ParkedProcess:
        """A parked process, waiting for one where none is there.

        Raises:
            OSError: no process could be forked.
            Interrupted: the task keeper is gone.
        """
        with self._changed:
            self.wait_parked()
            return self._parked.popleft()

    def wait_parked(self) -> None:
        """Have a process parked where none is, and wait for it.

        Raises:
            OSError: no process could be forked.
            Interrupted: the task keeper is gone.
        """
        with self._changed:
            self._ask(1 - len(self._parked) - self._coming)
            self._changed.wait_for(lambda: self._parked or self._is_lost or not self._coming, _PARK_SECONDS)
            if self._parked:
                return
            if self._is_lost:
                raise Interrupted("The keeper of this task is gone.")
            self.is_stuck = self._refusal is None
            number = errno.ETIMEDOUT if self._refusal is None else self._refusal
            raise OSError(number, os.strerror(number))

    @property
    def is_lost(self) -> bool:
        """The task keeper is gone."""
        return self._is_lost

    def park(self, count: int) -> None:
        """Have so many parked, for a task that is going to take them."""
        with self._changed:
            self._ask(count - len(self._parked) - self._coming)

    def park_missing(self) -> None:
        """Have as many parked as there should be before a task."""
        self.park(self._wanted)

    def _ask(self, count: int) -> None:
        if count <= 0 or self._is_lost:
            return
        self._coming += count
        self._refusal = None
        with contextlib.suppress(OSError):  # it is gone, which is heard in a moment
            self.connection.send({"op": "park", "count": count})

    def without_inherited(self, env: Mapping[str, str]) -> tuple[bool, dict[str, str]]:
        """What has to be added to the environment of a parked process; or all of it, to which the flag is False.

        Only where nothing in it has another place than in the environment of a new program.
        """
        wanted = list(env.items())
        count = len(self._environment)
        if wanted[:count] == self._environment:
            return True, dict(wanted[count:])
        return False, dict(wanted)

    def give_up(self, parked: ParkedProcess) -> None:
        """Be done with one that has died before it was told anything: its end is nobody's."""
        with self._changed:
            self._given_up.add(parked.pid)
        parked.connection.close()

    def close_parked(self) -> None:
        """Hang up on what is parked."""
        for parked in tuple(self._parked):
            parked.connection.close()

    # ---- event thread

    def receive(self) -> bool:
        """Pass on what has arrived; False when the task keeper is gone."""
        # The number of a file that was closed a moment ago may be this one's by now: there need not be anything.
        messages = self.connection.receive(wait=False)
        if messages is None:
            return False
        for message, files in messages:
            self._hear(message, files)
        return True

    def lose(self) -> None:
        """Note that the task keeper is gone."""
        with self._changed:
            self._is_lost = True
            self.close_parked()
            self._parked.clear()
            self._changed.notify_all()

    def _hear(self, message: dict[str, Any], files: list[int]) -> None:
        match message["event"]:
            case "parked" if len(files) == 1:
                parked = ParkedProcess(message["pid"], FrameSocket(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=files[0])))
                with self._changed:
                    self._coming = max(0, self._coming - 1)
                    self._given_up.discard(parked.pid)  # that was another process of this number
                    self._parked.append(parked)
                    self._changed.notify_all()
            case "parked":  # the kernel drops a file that comes while this process has as many open as it may
                self._refuse(errno.EMFILE)
            case "park_failed":
                self._refuse(message["errno"])
            case "exited" if not self._is_of_task(message):
                pass
            case _ if self.task is not None:
                self.task.hear(message)

    def _refuse(self, number: int) -> None:
        with self._changed:
            self._coming = max(0, self._coming - 1)
            self._refusal = number
            self._changed.notify_all()

    def _is_of_task(self, message: dict[str, Any]) -> bool:
        """Whether what has ended was told what to become, before or now."""
        pid = message["pid"]
        with self._changed:
            self._coming += message["parks"]
            if pid in self._given_up:
                self._given_up.discard(pid)
                return False
            for parked in self._parked:
                if parked.pid == pid:
                    self._parked.remove(parked)
                    parked.connection.close()
                    return False
        return True
