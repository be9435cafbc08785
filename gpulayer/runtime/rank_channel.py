"""A rank's way to its agent: a unix socket beside stdout and stderr. Runs in the rank.

Of the rank's own process alone: what the script forks says nothing here and doesn't keep it open. Messages are plain objects,
as `task_messages.py` reads them; nothing is loaded for them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

from gpulayer.runtime.frames import FrameSocket, connect

CHANNEL = "GPULAYER_CHANNEL"  # as in `rank_environment`, which loads psutil
ACK_SECONDS = 2.0
"""How long a rank that has failed waits for the agent's word: until the guilty one is known, and the others have told their stacks."""


class RankChannel:
    """One rank's connection; one that was started by hand has nobody to speak to, and everything said here is dropped.

    Args:
        rank: its global rank.
        local_rank: its place on this node.
    """

    def __init__(self, rank: int, local_rank: int) -> None:
        self._rank = rank
        self._local_rank = local_rank
        self._pid = os.getpid()
        path = os.environ.get(CHANNEL)
        self._frames: FrameSocket | None = None if path is None else connect(path)
        self._file = None if self._frames is None else file_of(self._frames)
        if self._frames is not None:
            os.register_at_fork(after_in_child=self._forget)

    @property
    def is_open(self) -> bool:
        """Whether there is an agent, and this is the rank's own process, whose script has not closed all files that it did not open."""
        return self.is_ours and self._frames is not None and file_of(self._frames) == self._file

    @property
    def is_ours(self) -> bool:
        """False in a forked process."""
        return os.getpid() == self._pid

    def _forget(self) -> None:
        """In a forked process: close it, unless its number is another file's by then."""
        if self._frames is not None and file_of(self._frames) == self._file:
            self._frames.close()

    def tell_hello(self, files: Mapping[str, int]) -> None:
        """Say that the rank is there; see `task_messages.Hello` for the files.

        Raises:
            OSError: the agent is gone.
        """
        hello = {
            "type": "hello",
            "rank": self._rank,
            "local_rank": self._local_rank,
            "pid": self._pid,
            "at": time.monotonic(),
            "files": list(files),
        }
        if self._frames is not None:
            self._frames.send(hello, tuple(files.values()))

    def tell_mark(self, name: str) -> None:
        """Say that the rank has come to a step (`protocol.MARKS`) at this moment."""
        self._tell({"type": "mark", "name": name, "at": time.monotonic()})

    def tell_returned(self) -> None:
        """Say that the script is through."""
        self._tell({"type": "returned", "at": time.monotonic()})

    def tell_failed(self, exit_code: int, error: dict[str, Any] | None) -> None:
        """Tell the agent and wait until it knows: once this process ends, the other ranks see closed connections and fail too."""
        if not self.is_open or self._frames is None:
            return
        # The agent may be gone, or a second Ctrl-C arrive: then the exit code has to do.
        with contextlib.suppress(OSError, KeyboardInterrupt):
            self._frames.send({"type": "failed", "exit_code": exit_code, "error": error})
            self._frames.set_timeout(ACK_SECONDS)
            self._frames.receive_one()

    def _tell(self, message: dict[str, Any]) -> None:
        if self.is_open and self._frames is not None:
            with contextlib.suppress(OSError):
                self._frames.send(message)


def file_of(frames: FrameSocket) -> tuple[int, int] | None:
    """Which file it is that has the connection's number; None where none has."""
    try:
        found = os.fstat(frames.fileno())
    except OSError:
        return None
    return found.st_dev, found.st_ino


current: RankChannel | None = None
"""That of this process, where it is a rank."""


def mark(name: str) -> None:
    """Say that this rank has come to a step (`protocol.MARKS`); elsewhere nothing happens."""
    if current is not None:
        current.tell_mark(name)
