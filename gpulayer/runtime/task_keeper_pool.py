"""The task keepers that one keeper or zygote has forked, as the agent holds them: in use, and idle for the next task.

Runs in the agent. The process that forks them is its owner's matter (`process.py`, `zygote.py`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from gpulayer.runtime.channel import Channel
from gpulayer.runtime.event_thread import EventThread
from gpulayer.runtime.frames import FrameSocket
from gpulayer.runtime.task_keeper_link import TaskKeeperLink
from gpulayer.runtime.task_processes import ProcessExit, TaskProcesses

_log = logging.getLogger(__name__)


class TaskKeeperPool:
    """Opens task keepers, keeps those that a task has left clean, and hears all of them.

    Args:
        thread: hears them.
        environment: what the processes that they park are started with.
        name: of their channels' files, told apart from those of another pool in the same folder.
        spares: how many are held ready.
        parked: how many interpreters each of them holds ready.
    """

    def __init__(self, thread: EventThread, environment: Mapping[str, str], *, name: str, spares: int, parked: int = 1) -> None:
        self._thread = thread
        self._environment = environment
        self._name = name
        self._spares = spares
        self._parked = parked
        self._opening = threading.Lock()
        self._connection: FrameSocket | None = None
        self._folder: Path | None = None
        self._generation = 0  # what another process has forked serves no further task
        self._channels = 0
        # Of their own, since the event thread takes it: it must not wait while a task keeper is opened.
        self._changed = threading.Condition()
        self._task_keepers: set[TaskKeeperLink] = set()
        self._idle: deque[TaskKeeperLink] = deque()
        _pools.add(self)

    def connect(self, connection: FrameSocket, folder: Path) -> None:
        """Have them forked by the process at the other end; their channels lie in this folder."""
        with self._changed:
            self._connection, self._folder = connection, folder
            self._generation += 1
        self.refill()

    def disconnect(self) -> None:
        """Open none any more, and hang up on those that are idle."""
        with self._changed:
            self._connection = None
            idle = list(self._idle)
            self._idle.clear()
        for task_keeper in idle:
            task_keeper.connection.shutdown()

    def hang_up(self) -> None:
        """End all of them, with what they have."""
        self.disconnect()
        with self._changed:
            task_keepers = list(self._task_keepers)
        for task_keeper in task_keepers:
            task_keeper.connection.shutdown()

    def wait_gone(self, seconds: float) -> bool:
        """Wait until none is left; False when it takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._task_keepers, seconds)

    def open_task(self, on_exit: Callable[[ProcessExit], None], on_lost: Callable[[], None]) -> TaskProcesses:
        """Make room for one task's processes; see `TaskProcesses` for the callbacks.

        Raises:
            ConnectionError: the process that forks them is gone.
            OSError: no file is to be had for it.
        """
        with self._changed:
            link = self._idle.popleft() if self._idle else None
        if link is None:
            link = self._open()
        task_keeper = link
        task = TaskProcesses(task_keeper, self._thread, on_exit, on_lost, lambda: self._give_back(task_keeper, task))
        with self._changed:
            task_keeper.task = task
            is_lost = task_keeper not in self._task_keepers
        if is_lost:
            task.lose()
        return task

    def refill(self) -> None:
        """Hold as many spares as there should be."""
        while self._connection is not None:
            with self._changed:
                if len(self._idle) >= self._spares:
                    return
            try:
                spare = self._open()
            except OSError as error:  # a task that needs one says so itself
                _log.warning("no spare task keeper: %s", error)
                return
            with self._changed:
                if spare in self._task_keepers:
                    self._idle.append(spare)

    def _open(self) -> TaskKeeperLink:
        with self._opening, contextlib.ExitStack() as made:
            with self._changed:
                connection, folder, generation = self._connection, self._folder, self._generation
            if connection is None or folder is None:
                raise ConnectionError("the process that forks task keepers is gone")
            self._channels += 1
            channel = Channel(self._thread, folder / f"{self._name}-{self._channels}")
            made.callback(channel.close)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            made.callback(ours.close)
            with theirs:
                try:
                    connection.send({"op": "open_task", "parks": self._parked}, (theirs.fileno(),))
                except OSError as error:  # closed here, or there
                    raise ConnectionError("the process that forks task keepers is gone") from error
            made.pop_all()
        task_keeper = TaskKeeperLink(FrameSocket(ours), channel, self._environment, parked=self._parked)
        task_keeper.generation = generation
        with self._changed:
            self._task_keepers.add(task_keeper)
        self._thread.add(task_keeper.connection, lambda: self._hear(task_keeper))
        return task_keeper

    # ---- event thread

    def _hear(self, task_keeper: TaskKeeperLink) -> None:
        try:
            if task_keeper.receive():
                return
        except Exception:  # noqa: BLE001 - one task's fault, and the others are still to be heard
            _log.exception("what a task's keeper says could not be handled; its processes are given up")
        self._thread.remove(task_keeper.connection)
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
            if is_free and self._keep(task_keeper):
                task_keeper.park_missing()
            else:
                task_keeper.connection.shutdown()
                self.refill()

    def _keep(self, task_keeper: TaskKeeperLink) -> bool:
        """Make it a spare; False where there are enough, or it is gone."""
        with self._changed:
            is_current = self._connection is not None and task_keeper.generation == self._generation
            if not is_current or task_keeper not in self._task_keepers or len(self._idle) >= self._spares:
                return False
            task_keeper.task = None
            self._idle.append(task_keeper)
            return True

    def forget_in_child(self) -> None:
        """In a process that the agent's has forked: hold no end of a connection open."""
        if self._connection is not None:
            self._connection.close()
        for task_keeper in tuple(self._task_keepers):
            task_keeper.connection.close()
            task_keeper.close_parked()


_pools: weakref.WeakSet[TaskKeeperPool] = weakref.WeakSet()


def _forget_in_child() -> None:
    for pool in _pools:
        pool.forget_in_child()


os.register_at_fork(after_in_child=_forget_in_child)
