"""The steps by which a process that was forked ahead becomes a job's program. Runs below a task keeper."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import signal
from typing import Any, NoReturn

from gpulayer.runtime.process_tree import end_with_parent

MAX_FD = 1 << 20
KEEPER_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
"""Those that a keeper or a task keeper handles in a way of its own."""
PYTHONS_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores them in itself, and sets the default for what it starts."""


class PlaceRefused(Exception):
    """A program, a working directory or a limit that could not be had."""

    def __init__(self, error: OSError, at: str) -> None:
        super().__init__(error, at)
        self.error = error
        self.at = at


def become_program(message: dict[str, Any], files: list[int]) -> NoReturn:
    """Become `message["argv"]`; everything else of this process that is open closes with it.

    Args:
        message: `argv`, `cwd`, `env`, `umask` and `limits`.
        files: what becomes its stdout and stderr.

    Raises:
        PlaceRefused: naming what could not be had.
    """
    take_files(files)
    take_place(message)
    for number in PYTHONS_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(message["argv"][0], message["argv"], message["env"])  # noqa: S606 - what a keeper is for
    except OSError as error:
        raise PlaceRefused(error, message["argv"][0]) from error


def forget_inherited_signals() -> None:
    """In the keeper, once: jobs shall not ignore what whatever started the agent ignores, but what Python does at its start."""
    for number in PYTHONS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, *PYTHONS_SIGNALS}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)


def leave_keeper(parent: int) -> None:
    """A session of its own, signals as they are at Python's start, and an end with the task keeper.

    Args:
        parent: the process that forked this one.
    """
    signal.set_wakeup_fd(-1)
    for number in KEEPER_SIGNALS:  # the others are as Python has them at its start
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.setsid()
    end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(127)  # the task keeper died before the line above was armed


def take_files(files: list[int]) -> None:
    """Put nothing on stdin and the two files on stdout and stderr."""
    files = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 10) for file in files]
    stdin = os.open(os.devnull, os.O_RDONLY)
    for number, file in enumerate((stdin, *files)):
        os.dup2(file, number)
    for file in {stdin, *files} - {0, 1, 2}:
        os.close(file)


def take_place(message: dict[str, Any]) -> None:
    """Set working directory, umask and limits.

    Raises:
        PlaceRefused: naming what could not be had.
    """
    at = f"working directory {message['cwd']}"
    try:
        os.chdir(message["cwd"])
        os.umask(message["umask"])
        for name, value in message["limits"].items():
            at = f"limit {name}"
            resource.setrlimit(getattr(resource, name), tuple(value))
    except OSError as error:
        raise PlaceRefused(error, at) from error
    except ValueError as error:  # what Python makes of a limit that is refused
        raise PlaceRefused(OSError(errno.EPERM, str(error)), at) from error
