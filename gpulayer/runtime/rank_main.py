"""The entry of every rank: `python -m gpulayer.runtime.rank_main [--launcher=torchrun|direct] script.py args…`.

Connects to the agent's channel, under torchrun puts stdout and stderr on pipes of the rank's own, runs the script as
`__main__` the way Python would, and tells the agent how it ended before the process does. Without a launcher it is rank 0 of
one, whatever the environment says.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.machinery
import io
import os
import signal
import sys
import types
from pathlib import Path
from typing import NoReturn

from gpulayer.runtime import interpreter_end, rank_channel, rank_hooks, rank_records
from gpulayer.runtime.process_tree import end_with_parent
from gpulayer.runtime.rank_channel import RankChannel
from gpulayer.runtime.rank_error import report_error
from gpulayer.runtime.rank_torch import await_torch
from gpulayer.runtime.stack_signal import offer_stacks

_LAUNCHER = "--launcher="
_INTERRUPTED = 130


def main() -> NoReturn:
    """Run the script named by the command line and leave with its exit code."""
    words = sys.argv[1:]
    launcher = words.pop(0).removeprefix(_LAUNCHER) if words and words[0].startswith(_LAUNCHER) else None
    if not words or launcher not in (None, "torchrun", "direct"):
        raise SystemExit("usage: python -m gpulayer.runtime.rank_main [--launcher=torchrun|direct] script.py [argument …]")
    own_pid = os.getpid()
    _end_with_parent()
    channel = _open_channel(launcher)
    faulthandler.enable()
    await_torch(channel)
    code = _run_script(words[0], words, channel)
    if os.getpid() != own_pid:
        sys.exit(code)  # a process that the script forked and that ran on to the script's end: it ends as under Python
    _leave(code)


def _end_with_parent() -> None:
    parent = os.getppid()
    end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it died before the line above was armed


def _open_channel(launcher: str | None) -> RankChannel:
    """Connect to the agent; with pipes of the rank's own where torchrun started it, else stdout and stderr are such already."""
    rank = int(os.environ.get("RANK", "0")) if launcher else 0
    channel = RankChannel(rank, int(os.environ.get("LOCAL_RANK", "0")) if launcher else 0)
    if not channel.is_open:
        return channel
    pipes = {"stdout": os.pipe(), "stderr": os.pipe()} if launcher == "torchrun" else {}
    files = {name: reader for name, (reader, _) in pipes.items()}
    if (stacks := offer_stacks()) is not None:
        files["stacks"] = stacks
    channel.tell_hello(files)
    for number, (_, writer) in enumerate(pipes.values(), start=1):
        os.dup2(writer, number)
        os.close(writer)
    for file in files.values():
        os.close(file)
    rank_channel.current = channel
    os.environ[rank_records.RANK] = str(rank)
    rank_hooks.install()
    return channel


def _run_script(script: str, argv: list[str], channel: RankChannel) -> int:
    """Run the script as `__main__`, report how it ended, and return the exit code."""
    try:
        try:
            exit_code = _run_to_end(_become_main(script, argv), channel)
        finally:
            rank_records.flush()
    except BaseException as error:  # noqa: BLE001 - whatever the script lets out ends the rank, and is reported
        exit_code = _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
        report = report_error(error)
        channel.tell_failed(exit_code, report)
        return exit_code
    if exit_code != 0:
        channel.tell_failed(exit_code, None)
    else:
        channel.tell_returned()
    return exit_code


def _run_to_end(code: types.CodeType, channel: RankChannel) -> int:
    """Run the script and wait for the work that it left to threads and processes; return the exit code.

    That work is part of the script: Python ends after it, and what a rank does after it has said `returned` has a limit.
    """
    exit_code = 0
    try:
        exec(code, sys.modules["__main__"].__dict__)  # noqa: S102 - the user's script, as Python runs it
    except SystemExit as exit_request:
        exit_code = interpreter_end.exit_code(exit_request)
    except Exception:
        _show_figures(channel)  # a notebook's cell shows what it drew before its error
        raise
    _show_figures(channel)
    if exit_code == 0 and channel.is_ours:  # a forked process waits in its own exit, as Python does
        interpreter_end.join_threads()
        if interpreter_end.has_processes():
            # Some of them end only by an exit handler (a Manager), the others are waited for by one.
            interpreter_end.run_exit_handlers()
        rank_hooks.keep_wanted_values()
    return exit_code


def _show_figures(channel: RankChannel) -> None:
    if channel.is_ours:
        rank_hooks.show_open_figures()


def _become_main(script: str, argv: list[str]) -> types.CodeType:
    """Make `__main__`, `sys.argv` and `sys.path` what they are under `python script.py`, and compile the script."""
    path = os.path.abspath(script)  # noqa: PTH100 - does not follow links, as Python does not for __file__
    folder = str(Path(path).resolve().parent)
    if sys.flags.safe_path:
        sys.path.insert(0, folder)
    else:
        sys.path[0] = folder  # the working directory, which `-m` put there
    sys.argv[:] = argv
    module = types.ModuleType("__main__")
    # With a loader, inspect and linecache find the source; with __file__ and no spec, workers that multiprocessing spawns
    # import the script again as `__mp_main__`.
    module.__dict__.update(
        __file__=path,
        __cached__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
        __spec__=None,
        __builtins__=sys.modules["builtins"],
    )
    module.__annotations__ = {}
    sys.modules["__main__"] = module
    with io.open_code(path) as source:
        return compile(source.read(), path, "exec", dont_inherit=True)


def _leave(code: int) -> NoReturn:
    """What Python does at its end, short of taking the interpreter apart."""
    interpreter_end.run_exit_handlers()
    rank_records.flush()  # of what exit handlers logged and displayed
    for name in ("stdout", "stderr"):
        with contextlib.suppress(Exception):  # whatever the script put there
            getattr(sys, name).flush()
    interpreter_end.flush_open_files()
    os._exit(code)


if __name__ == "__main__":
    main()
