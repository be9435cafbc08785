"""What is done once, in the keeper, for all interpreters that are forked from it: modules loaded, the keeper's own traces taken out.

Whatever a child would have to change is a page that the kernel copies for it, so it is changed before the fork.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import weakref
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from gpulayer.runtime.cold_start import take_files
from gpulayer.runtime.process_tree import IS_LINUX

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
        # What they would take apart at this process's end (torch: every operator, one by one) is not for each of its children to do.
        for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # noqa: SLF001 - there is no other list
            finalizer.atexit = False
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


def take_out_traces() -> dict[str, ModuleType]:
    """Make this process look, to what is forked from it, like a Python that has just started.

    Its import caches are gone, its environment is the one that it was started with, and its standard streams are
    such as Python opens on pipes; it goes on printing where it did.

    Returns:
        GPUlayer's modules, which are taken from `sys.modules`: a job's own module of such a name must be found.
    """
    ours = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "gpulayer"}
    for name in ours:
        del sys.modules[name]
    sys.path_importer_cache.clear()  # what is installed later is found
    for name in _set_by_python():
        del os.environ[name]
    # A stream keeps what it found at its making: that its file is a pipe.
    own = [os.dup(number) for number in range(3)]
    reader, writer = os.pipe()
    take_files([writer, writer])
    renew_streams(is_unbuffered=True)
    for number, file in enumerate(own):
        os.dup2(file, number)
    for file in (*own, reader, writer):
        os.close(file)
    return ours


def _set_by_python() -> list[str]:
    """What Python has put into its own environment: LC_CTYPE, in a C locale (PEP 538)."""
    if not IS_LINUX:
        return []
    given = {entry.partition(b"=")[0] for entry in Path("/proc/self/environ").read_bytes().split(b"\0")}
    return [name for name in os.environ if os.fsencode(name) not in given]


def renew_streams(*, is_unbuffered: bool) -> None:
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
