"""A parked interpreter: forked ahead, idle on a socket, and then turned into one job's process as if just started.

A task keeper forks it (`task_keeper.py`), the agent says what to become (`task_processes.py`). How a job that starts here differs
from one that starts as a new program stands in ADR-0030. The job's code runs in `parked_job.py`.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import socket
import sys
import threading
from types import ModuleType
from typing import Any, NoReturn

from gpulayer.runtime.cold_start import MAX_FD, PlaceRefused, become_program, leave_keeper, take_files, take_place
from gpulayer.runtime.frames import FrameSocket
from gpulayer.runtime.parked_job import ParkedJob
from gpulayer.runtime.parked_site import ParkedSite
from gpulayer.runtime.parked_template import renew_streams
from gpulayer.runtime.process_tree import unbuffer_native_output

_DRAWN_ANEW = ("random", "numpy.random")


class Parked(BaseException):
    """Raised in a process that has just been forked, to leave all frames of the keeper before it parks.

    Args:
        connection: where it is told what to become.
        parent: the task keeper that forked it.
        site: what the job may find otherwise here than in a new program.
    """

    def __init__(self, connection: int, parent: int, site: ParkedSite) -> None:
        super().__init__()
        self.connection = connection
        self.parent = parent
        self.site = site


def park(end: int, parent: int, site: ParkedSite, ours: dict[str, ModuleType]) -> NoReturn:
    """Wait for a job, become it and end with it.

    On the connection goes a message of the job's place and program, with its stdout, its stderr and what else it is to have open.
    Nothing is answered where it runs as asked, and the connection's end says that it does.

    Args:
        end: as in `Parked`.
        parent: as there.
        site: as there.
        ours: GPUlayer's modules, which a rank needs.
    """
    leave_keeper(parent)
    os.closerange(3, end)
    os.closerange(end + 1, MAX_FD)
    connection = FrameSocket(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=end))
    # Python itself forgets it over a fork.
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]  # noqa: SLF001
    _rehearse(site)
    message, files = _wait_for_job(connection)
    try:
        if len(files) != 2 + len(message["files"]):  # the kernel drops those that come while this process has as many open as it may
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if message["form"] is not None and (why := site.refuse(message)) is not None:
            connection.send({"event": "cold", "why": why})
            message["form"] = None
        extra = files[2:]
        message["env"].update(zip(message["files"], map(str, extra), strict=True))
        if message["form"] is None:
            if message["inherits"]:
                message["env"] = {**os.environ, **message["env"]}
            for file in extra:
                os.set_inheritable(file, True)
            become_program(message, files[:2])
        _become(message, files[:2], ours)
    except PlaceRefused as refused:
        _say_why(connection, refused.error, refused.at)
    except Exception as error:  # noqa: BLE001 - nothing of the job has run: whatever it is, the job fails to start and the agent says why
        failure = error if isinstance(error, OSError) else OSError(errno.EINVAL, str(error))
        _say_why(connection, failure, "a process for it")
    form, argv = message["form"], message["argv"]
    connection.close()
    del message, files, connection, site
    job = ParkedJob(form, argv)
    gc.freeze()  # what is listed from here on is the job's
    job.run()


def _rehearse(site: ParkedSite) -> None:
    """What is written first is copied by the kernel, page by page: the pages that every job writes, before one waits for them."""
    site.look()
    json.loads(json.dumps({"argv": sys.orig_argv}))
    os.environ["GPULAYER"] = ""
    del os.environ["GPULAYER"]
    exec(compile("pass", "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - ours


def _wait_for_job(connection: FrameSocket) -> tuple[dict[str, Any], list[int]]:
    while True:
        received = connection.receive()
        if received is None:
            os._exit(0)
        if received:
            return received[0]


def _say_why(connection: FrameSocket, error: OSError, at: str) -> NoReturn:
    connection.send({"event": "failed", "errno": error.errno or 0, "at": at})
    os._exit(127)


def _become(message: dict[str, Any], files: list[int], ours: dict[str, ModuleType]) -> None:
    take_files(files)
    for file in files:
        if file > 2:
            os.close(file)
    take_place(message)
    if not message["inherits"]:
        os.environ.clear()  # what differs alone would stand in another order than a new program finds
    for name, value in message["env"].items():
        os.environ[name] = value
    if _is_set(message["env"].get("PYTHONUNBUFFERED", "")):
        unbuffer_native_output()
    else:
        renew_streams(is_unbuffered=False)
    sys.executable = message["executable"]
    sys.orig_argv = list(message["argv"])
    for name in _DRAWN_ANEW:
        if (module := sys.modules.get(name)) is not None:
            module.seed()
    if (multiprocessing := sys.modules.get("multiprocessing.process")) is not None:
        multiprocessing.current_process().authkey = os.urandom(32)  # who has it is let in by what this process serves
    if message["form"] == "rank":
        sys.modules.update(ours)


def _is_set(flag: str) -> bool:
    """As Python reads a flag of its environment: a number other than 0, or any other word."""
    try:
        return int(flag) != 0
    except ValueError:
        return bool(flag)
