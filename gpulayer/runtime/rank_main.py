"""The entry of every rank: `python -m gpulayer.runtime.rank_main [--rank-pipes] script.py args…`.

Connects to the agent's channel, with `--rank-pipes` puts stdout and stderr on pipes of the rank's own, runs the script as
`__main__` the way Python would, and tells the agent how it ended before the process does. Messages sent: `hello` {rank,
local_rank, pid} with the pipes' reading ends, `failed` {exit_code, error}, `returned`; received: `ack`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.machinery
import io
import os
import signal
import sys
import traceback
import types
from pathlib import Path
from typing import NoReturn

from gpulayer.runtime import interpreter_end
from gpulayer.runtime.frames import FrameSocket, connect
from gpulayer.runtime.process_tree import end_with_parent

_CHANNEL = "GPULAYER_CHANNEL"
_ACK_SECONDS = 1.0
_INTERRUPTED = 130
_OURS = __file__


def main() -> NoReturn:
    """Run the script named by the command line and leave with its exit code."""
    words = sys.argv[1:]
    rank_pipes = words[:1] == ["--rank-pipes"]
    if rank_pipes:
        del words[0]
    if not words:
        raise SystemExit("usage: python -m gpulayer.runtime.rank_main script.py [argument …]")
    own_pid = os.getpid()
    _end_with_parent()
    channel = _open_channel(rank_pipes=rank_pipes)
    faulthandler.enable()
    code = _run_script(words[0], words, channel)
    if os.getpid() != own_pid:
        sys.exit(code)  # a process that the script forked and that ran on to the script's end: it ends as under Python
    _leave(code)


def _end_with_parent() -> None:
    parent = os.getppid()
    end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it died before the line above was armed


class _Channel:
    """The way to the agent, of this process alone: what the script forks says nothing there and doesn't keep it open."""

    def __init__(self, frames: FrameSocket | None) -> None:
        self._frames = frames
        self._pid = os.getpid()
        if frames is not None:
            os.register_at_fork(after_in_child=frames.close)

    @property
    def is_ours(self) -> bool:
        """False in a forked process."""
        return os.getpid() == self._pid

    def tell_returned(self) -> None:
        if self._frames is None or not self.is_ours:
            return
        with contextlib.suppress(OSError):
            self._frames.send({"type": "returned"})

    def tell_failed(self, exit_code: int, error: dict[str, str] | None) -> None:
        """Tell the agent and wait until it knows: once this process ends, the other ranks see closed connections and fail too."""
        if self._frames is None or not self.is_ours:
            return
        # The agent may be gone, or a second Ctrl-C arrive: then the exit code has to do.
        with contextlib.suppress(OSError, KeyboardInterrupt):
            self._frames.send({"type": "failed", "exit_code": exit_code, "error": error})
            self._frames.set_timeout(_ACK_SECONDS)
            self._frames.receive_one()


def _open_channel(*, rank_pipes: bool) -> _Channel:
    path = os.environ.get(_CHANNEL)
    if path is None:
        return _Channel(None)  # started by hand: there is nobody to report to
    channel = connect(path)
    rank = os.environ.get("RANK", "0") if rank_pipes else "0"
    local_rank = os.environ.get("LOCAL_RANK", "0") if rank_pipes else "0"
    hello = {"type": "hello", "rank": int(rank), "local_rank": int(local_rank), "pid": os.getpid()}
    if not rank_pipes:
        channel.send(hello)
        return _Channel(channel)
    pipes = [os.pipe(), os.pipe()]
    channel.send(hello, [reader for reader, _ in pipes])
    for number, (reader, writer) in enumerate(pipes, start=1):
        os.dup2(writer, number)
        os.close(reader)
        os.close(writer)
    return _Channel(channel)


def _run_script(script: str, argv: list[str], channel: _Channel) -> int:
    """Run the script as `__main__`, report how it ended, and return the exit code."""
    try:
        exit_code = _run_to_end(_become_main(script, argv), channel)
    except BaseException as error:  # noqa: BLE001 - whatever the script lets out ends the rank, and is reported
        exit_code = _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
        report = _show(error)
        channel.tell_failed(exit_code, report)
        return exit_code
    if exit_code != 0:
        channel.tell_failed(exit_code, None)
    else:
        channel.tell_returned()
    return exit_code


def _run_to_end(code: types.CodeType, channel: _Channel) -> int:
    """Run the script and wait for the work that it left to threads and processes; return the exit code.

    That work is part of the script: Python ends after it, and what a rank does after it has said `returned` has a limit.
    """
    exit_code = 0
    try:
        exec(code, sys.modules["__main__"].__dict__)  # noqa: S102 - the user's script, as Python runs it
    except SystemExit as exit_request:
        exit_code = interpreter_end.exit_code(exit_request)
    if exit_code == 0 and channel.is_ours:  # a forked process waits in its own exit, as Python does
        interpreter_end.join_threads()
        if interpreter_end.has_processes():
            # Some of them end only by an exit handler (a Manager), the others are waited for by one.
            interpreter_end.run_exit_handlers()
    return exit_code


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


def _show(error: BaseException) -> dict[str, str]:
    """Print the traceback as Python would, without the frames of this file, and return it for the agent."""
    tail = error.__traceback__
    while tail is not None and tail.tb_frame.f_code.co_filename == _OURS:
        tail = tail.tb_next
    if (bdb := sys.modules.get("bdb")) is not None and isinstance(error, bdb.BdbQuit):
        tail = _without_debugger(tail, {bdb.__file__, getattr(sys.modules.get("pdb"), "__file__", None)})
    error = error.with_traceback(tail)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    try:
        sys.excepthook(type(error), error, tail)
        sys.stderr.flush()
    except Exception as hook_error:  # noqa: BLE001 - a hook of the user's; the rank's own error is what counts
        with contextlib.suppress(OSError, ValueError, AttributeError):
            print(f"sys.excepthook failed: {hook_error!r}", file=sys.stderr)  # noqa: T201
    return {
        "type": _escape(_full_name(type(error))),
        "message": _escape(_message(error)),
        "traceback": _escape("".join(traceback.format_exception(type(error), error, tail))),
    }


def _without_debugger(tail: types.TracebackType | None, debugger_files: set[str | None]) -> types.TracebackType | None:
    """The script's part of a traceback that ends in bdb: a rank has no stdin, so a breakpoint quits where the script stands."""
    entries = []
    stopped_in: types.FrameType | None = None
    while tail is not None:
        if tail.tb_frame.f_code.co_filename not in debugger_files:
            entries.append((tail.tb_frame, tail.tb_lasti, tail.tb_lineno))
        elif stopped_in is None and isinstance(frame := tail.tb_frame.f_locals.get("frame"), types.FrameType):
            stopped_in = frame
        tail = tail.tb_next
    # What is raised as a function returns leaves no entry for that function.
    if stopped_in is not None and stopped_in.f_code.co_filename != _OURS and all(frame is not stopped_in for frame, *_ in entries):
        entries.append((stopped_in, stopped_in.f_lasti, stopped_in.f_lineno))
    kept: types.TracebackType | None = None
    for frame, instruction, line in reversed(entries):
        kept = types.TracebackType(kept, frame, instruction, line)
    return kept


def _escape(text: str) -> str:
    """Lone surrogates (from names of files that are no UTF-8) written out: no message can hold them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _full_name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - a __str__ of the user's
        return f"<no message: its __str__ raised {type(broken).__name__}>"


def _leave(code: int) -> NoReturn:
    """What Python does at its end, short of taking the interpreter apart."""
    interpreter_end.run_exit_handlers()
    for name in ("stdout", "stderr"):
        with contextlib.suppress(Exception):  # whatever the script put there
            getattr(sys, name).flush()
    interpreter_end.flush_open_files()
    os._exit(code)


if __name__ == "__main__":
    main()
