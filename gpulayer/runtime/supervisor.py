"""What the keeper and its task keepers share: one socket to the agent, children, and an end that leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

from gpulayer.runtime.frames import FrameSocket
from gpulayer.runtime.process_tree import IS_LINUX, become_subreaper, find_descendants


class Supervisor:
    """A single-threaded process that serves one connection; subclasses say what a message and a child's end mean.

    Args:
        connection: to the agent.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = FrameSocket(connection)
        self.ending = False
        become_subreaper()
        reader, writer = os.pipe()
        for fd in (reader, writer):
            os.set_blocking(fd, False)
        self._wakeup = (reader, writer)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.connection, selectors.EVENT_READ)
        self._selector.register(reader, selectors.EVENT_READ)
        # With a wakeup fd a signal that arrives just before the select still ends it.
        signal.signal(signal.SIGTERM, self._on_end)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def _on_end(self, *_: object) -> None:
        self.ending = True

    def run(self) -> None:
        """Serve until the agent is gone or says so, then kill what is left."""
        while not self.ending:
            for key, _ in self._selector.select():
                if key.fileobj is self.connection:
                    messages = self.connection.receive()
                    if messages is None:
                        self.lose_agent()
                        break
                    for message, files in messages:
                        self.handle(message, files)
                elif key.fd == self._wakeup[0]:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wakeup[0], 4096)
                else:
                    self.lose_agent()  # its process has ended, though another may hold its end of the socket
            self.reap()
        # Heard by an agent that is still there: the ends that follow are this process's doing and nobody's failure.
        self.tell("ending")
        self.kill_everything()

    def tell(self, event: str, files: Sequence[int] = (), **fields: Any) -> None:
        try:
            self.connection.send({"event": event, **fields}, files)
        except OSError:
            self.lose_agent()

    def lose_agent(self) -> None:
        """Nobody is there to be served any more."""
        self.ending = True

    def reap(self, *, block: bool = False) -> bool:
        """Collect children that have ended; True while there are others."""
        ended: list[tuple[int, int, resource.struct_rusage]] = []
        has_others = True
        while not (block and ended):
            try:
                pid, status, usage = os.wait4(-1, 0 if block else os.WNOHANG)
            except ChildProcessError:
                has_others = False
                break
            if pid == 0:
                break
            ended.append((pid, os.waitstatus_to_exitcode(status), usage))
        for child in sorted(ended, key=self.comes_after):
            self.child_ended(*child, has_others=has_others)
        return has_others

    def kill_everything(self) -> None:
        """Kill all descendants, whatever they fork meanwhile. Returns when none is left."""
        while self.reap():
            for pid in self.descendants():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            # A descendant whose parent dies becomes a child of this process, so there is always one to wait for.
            self.reap(block=True)

    def descendants(self) -> list[int]:
        # Elsewhere there is no /proc: what left its process group is out of reach (docs: support table).
        return find_descendants(os.getpid()) if IS_LINUX else []

    def handle(self, message: dict[str, Any], files: list[int]) -> None:
        raise NotImplementedError

    def child_ended(self, pid: int, code: int, usage: resource.struct_rusage, *, has_others: bool) -> None:
        raise NotImplementedError

    def comes_after(self, ended: tuple[int, int, resource.struct_rusage]) -> bool:
        """Whether an end is to be handled after others that were collected with it."""
        del ended
        return False

    def abandon(self) -> None:
        """In a forked process: let go of what is its parent's."""
        signal.set_wakeup_fd(-1)
        self._selector.close()
        for fd in self._wakeup:
            os.close(fd)
        self.connection.close()


def complain(text: str) -> None:
    """Say what went wrong where no agent can be told."""
    print(f"gpulayer keeper: {text}", file=sys.stderr, flush=True)  # noqa: T201 - a keeper has no log, and shares the agent's stderr
