"""What Python does once a script is through, for processes that leave by `os._exit`. Runs in ranks and in parked interpreters.

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
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(value, file=sys.stderr, flush=True)  # noqa: T201 - as Python does
    return 1


def join_threads() -> None:
    """Wait for threads that aren't daemons and end executors, as Python does; a second time nothing happens."""
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - has no other name


def join_processes() -> None:
    """Wait for processes of `multiprocessing` that aren't daemons: Python does it in an exit handler."""
    multiprocessing = sys.modules.get("multiprocessing")  # imported by the script, if it used it: it takes a while to load
    if multiprocessing is not None:
        for child in multiprocessing.active_children():
            if not child.daemon:
                child.join()


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
        if file not in (sys.stdout, sys.stderr) and not file.closed:
            with contextlib.suppress(OSError, ValueError):
                file.flush()
