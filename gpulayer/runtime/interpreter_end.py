"""What Python does once a script is through, for ranks, which leave by `os._exit`.

Teardown with a framework's threads alive can abort a process whose work is done (seen in 3 of 50 exits after
`destroy_process_group()`), so nothing here takes the interpreter apart.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import sys
import threading


def exit_code(exit_request: SystemExit) -> int:
    """What `sys.exit(value)` means: None is 0, a number is itself, anything else is printed and means 1."""
    value = exit_request.code
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF if -(2**63) <= value < 2**63 else 0xFF
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    with contextlib.suppress(Exception):  # its `__str__` is the script's
        print(value, file=sys.stderr, flush=True)  # noqa: T201 - as Python does
    return 1


def join_threads() -> None:
    """Wait for threads that aren't daemons and end executors, as Python does; a second time nothing happens."""
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - has no other name


def has_processes() -> bool:
    """Whether processes of `multiprocessing` that aren't daemons are alive: Python's exit handlers wait for them."""
    multiprocessing = sys.modules.get("multiprocessing")  # imported by the script, if it used it: it takes a while to load
    return multiprocessing is not None and any(not child.daemon for child in multiprocessing.active_children())


def run_exit_handlers() -> None:
    """Wait for threads, then call what was registered with `atexit`."""
    with contextlib.suppress(KeyboardInterrupt):
        join_threads()
    with contextlib.suppress(KeyboardInterrupt):
        atexit._run_exitfuncs()  # noqa: SLF001


def flush_open_files() -> None:
    """Write out what the script left in files that it didn't close; Python does it as it destroys them.

    The standard streams are not among them: what goes wrong there is the caller's to tell.
    """
    # By type and not by isinstance, which would ask an object for its `__class__`.
    kinds = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
    files = [found for found in gc.get_objects() if issubclass(type(found), kinds)]
    # Text first: it goes through a buffer that is flushed after it.
    for file in sorted(files, key=lambda file: not isinstance(file, io.TextIOWrapper)):
        with contextlib.suppress(Exception):  # detached, half-made or the script's own kind: one file's fault is no other's
            if file is not getattr(sys, "stdout", None) and file is not getattr(sys, "stderr", None) and not file.closed:
                file.flush()
