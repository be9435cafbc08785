"""A parked interpreter: forked ahead, idle on a socket, and then turned into one Python job as if just started.

Runs below a task keeper, which forks it (`task_keeper.py`) and says what to become. How a job that starts here differs from one
that starts as a new program stands in ADR-0030. The job's code runs in `parked_job.py`.
"""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import io
import json
import os
import socket
import sys
import threading
from collections.abc import Iterable
from types import ModuleType
from typing import Any, NoReturn

from gpulayer.runtime.cold_start import MAX_FD, PlaceRefused, become_program, leave_keeper, pack_failure, take_files, take_place
from gpulayer.runtime.frames import FrameSocket
from gpulayer.runtime.parked_job import ParkedJob
from gpulayer.runtime.process_tree import IS_LINUX, unbuffer_native_output

_DRAWN_ANEW = ("random", "numpy.random")
_GPU_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")


class PreloadRefused(Exception):
    """A module after whose import this process can't be a parent of others."""

    def __init__(self, module: str, found: str) -> None:
        super().__init__(f"{module}: {found}")


def preload(modules: Iterable[str]) -> None:
    """Import modules that every parked interpreter is to have.

    Raises:
        PreloadRefused: one can't be imported, or left a thread or a GPU behind, neither of which survives a fork.
    """
    blas = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        for module in modules:
            try:
                importlib.import_module(module)
            except Exception as error:  # whatever a module does as it is imported
                raise PreloadRefused(module, f"{type(error).__name__}: {error}") from error
            _check_fit_to_fork(module)
    finally:
        if blas is None:
            del os.environ["OPENBLAS_NUM_THREADS"]
        else:
            os.environ["OPENBLAS_NUM_THREADS"] = blas


def _check_fit_to_fork(module: str) -> None:
    if not IS_LINUX:
        return
    # The kernel's count: `threading.active_count()` misses those of native libraries.
    threads = sum(1 for _ in os.scandir("/proc/self/task"))
    if threads != 1:
        raise PreloadRefused(module, f"it started {threads - 1} threads")
    for entry in os.scandir("/proc/self/fd"):
        try:
            file = os.readlink(entry.path)  # noqa: PTH115 - text
        except OSError:
            continue  # the listing's own
        if file.startswith(_GPU_FILES):
            raise PreloadRefused(module, f"it opened {file}")


class Parked(BaseException):
    """Raised in a process that has just been forked, to leave all frames of the keeper before it parks.

    Args:
        connection: where it is told what to become.
        parent: the task keeper that forked it.
    """

    def __init__(self, connection: int, parent: int) -> None:
        super().__init__()
        self.connection = connection
        self.parent = parent


def park(end: int, parent: int) -> NoReturn:
    """Wait for a job, become it and end with it; the arguments are those of `Parked`."""
    leave_keeper(parent)
    os.closerange(3, end)
    os.closerange(end + 1, MAX_FD)
    connection = socket.socket(fileno=end)
    ours = _prepare()
    message, files = _wait_for_job(connection)
    try:
        if message["form"] is None:
            become_program(message, files)
        _become(message, files, ours)
    except PlaceRefused as refused:
        connection.sendall(pack_failure(refused.error, refused.at))
        os._exit(127)
    except Exception as error:  # noqa: BLE001 - nothing of the job has run: whatever it is, the job fails to start and the agent says why
        failure = error if isinstance(error, OSError) else OSError(errno.EINVAL, str(error))
        connection.sendall(pack_failure(failure, f"start: {error}"))
        os._exit(127)
    form, argv = message["form"], message["argv"]
    connection.close()  # nothing was said on it, so the job runs
    del message, files
    job = ParkedJob(form, argv)
    gc.freeze()  # what is listed from here on is the job's
    job.run()


def _prepare() -> dict[str, ModuleType]:
    """Do ahead what does not depend on the job, whose start it would delay: each page that is written first is copied.

    Returns:
        GPUlayer's modules, which are taken from `sys.modules`: a job's own module of such a name must be found.
    """
    atexit._clear()  # noqa: SLF001 - what the keeper's modules registered is theirs
    ours = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "gpulayer"}
    for name in ours:
        del sys.modules[name]
    sys.path_importer_cache.clear()  # what was installed since is found
    # A stream keeps what it found at its making: that its file is a pipe.
    reader, writer = os.pipe()
    take_files([writer, writer])
    os.close(writer)
    _renew_streams(is_unbuffered=True)
    os.close(reader)
    # Python itself forgets it over a fork.
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]  # noqa: SLF001
    # A rehearsal, for the pages alone.
    rehearsed = json.loads(json.dumps({"env": dict(os.environ), "argv": sys.orig_argv}))
    _set_environment(rehearsed["env"])
    exec(compile("pass", "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - ours
    return ours


def _wait_for_job(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    frames = FrameSocket(connection)
    while True:
        received = frames.receive()
        if received is None:
            os._exit(0)
        if received:
            return received[0]


def _become(message: dict[str, Any], files: list[int], ours: dict[str, ModuleType]) -> None:
    take_files(files)
    for file in files:
        if file > 2:
            os.close(file)
    take_place(message)
    _set_environment(message["env"])
    if _is_set(message["env"].get("PYTHONUNBUFFERED", "")):
        unbuffer_native_output()
    else:
        _renew_streams(is_unbuffered=False)
    sys.executable = message["executable"]
    sys.orig_argv = list(message["argv"])
    for name in _DRAWN_ANEW:
        if (module := sys.modules.get(name)) is not None:
            module.seed()
    if message["form"] == "rank":
        sys.modules.update(ours)


def _is_set(flag: str) -> bool:
    """As Python reads a flag of its environment: a number other than 0, or any other word."""
    try:
        return int(flag) != 0
    except ValueError:
        return bool(flag)


def _set_environment(env: dict[str, str]) -> None:
    # All of it anew: what differs alone would stand in another order than a new program finds.
    os.environ.clear()
    os.environ.update(env)


def _renew_streams(*, is_unbuffered: bool) -> None:
    """Standard streams as Python opens them at its start."""
    encoding = sys.stdout.encoding
    for number, (name, errors) in enumerate((("stdin", sys.stdin.errors), ("stdout", sys.stdout.errors), ("stderr", "backslashreplace"))):
        stream = _open_stream(number, f"<{name}>", encoding, errors, is_unbuffered=is_unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _open_stream(number: int, name: str, encoding: str, errors: str | None, *, is_unbuffered: bool) -> io.TextIOWrapper:
    is_output = number > 0
    is_raw = is_output and is_unbuffered
    buffer: Any = open(number, "wb" if is_output else "rb", buffering=0 if is_raw else -1, closefd=False)  # noqa: SIM115
    (buffer if is_raw else buffer.raw).name = name
    stream = io.TextIOWrapper(
        buffer, encoding, errors, newline="\n", line_buffering=number == 2 and not is_unbuffered, write_through=is_raw or is_unbuffered
    )
    stream.mode = "w" if is_output else "r"  # type: ignore[misc] # so it does itself
    return stream
