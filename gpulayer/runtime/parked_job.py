"""Runs one Python job in an interpreter that is warm already, and leaves its end to Python.

What comes before (streams, environment, place) is `parked.py`'s. Runs in the job's own process.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib.machinery
import io
import os
import signal
import sys
import types
from typing import NoReturn

from gpulayer.runtime import rank_main

_OURS = __file__
_LIBC = ctypes.CDLL(None)  # loaded before the fork
_LOADERS = (type(importlib.machinery.BuiltinImporter), importlib.machinery.SourceFileLoader)
_PLAIN = frozenset({types.NoneType, bool, int, float, str, bytes, types.ModuleType, types.FunctionType, *_LOADERS})
"""Values that a `__main__` may hold at its end without anything happening when they go."""
_HARMLESS = frozenset(
    {dict, list, tuple, set, types.FunctionType, types.CellType, types.FrameType, types.ModuleType, types.MethodType, *_LOADERS}
)
"""Kinds of objects that do nothing when they go, and hold nothing that is not in the collector's list itself or as plain as they are."""


class ParkedJob:
    """One job.

    Args:
        form: `-c`, `-m`, `script`, or `rank` for a script under `rank_main`.
        argv: the command with which it would start as a new program.
    """

    def __init__(self, form: str, argv: list[str]) -> None:
        self._form = form
        self._argv = argv
        self._pid = os.getpid()
        self._loaded = len(sys.modules)
        self._streams = _streams()

    def run(self) -> NoReturn:
        """Run it; what is raised is for Python itself, which ends the process with it.

        Raises:
            SystemExit: the job's own, or with the exit code.
            KeyboardInterrupt: the job let one out; it has been shown.
        """
        main = sys.modules["__main__"] = _make_main()
        try:
            # Only here: until its own code runs, a signal ends a program without a traceback.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            code = self._execute(main)
        except SystemExit:
            raise
        except BaseException as error:  # noqa: BLE001 - what Python itself does at the bottom of a program
            code = _show(error)
            if type(error) is KeyboardInterrupt:
                sys.excepthook = _show_nothing
                raise KeyboardInterrupt from None
        if os.getpid() == self._pid and self._leaves_nothing(main):
            _leave_at_once(code)
        raise SystemExit(code)

    def _leaves_nothing(self, main: types.ModuleType) -> bool:
        """Whether Python's own end would do nothing that anybody could see, which takes it milliseconds."""
        return (
            len(sys.modules) == self._loaded
            and atexit._ncallbacks() == 0  # noqa: SLF001
            and len(sys._current_frames()) == 1  # noqa: SLF001 - counts all threads that run Python
            and _streams() == self._streams
            and sys.gettrace() is None
            and sys.getprofile() is None
            and all(type(value) in _PLAIN for name, value in main.__dict__.items() if name not in ("__builtins__", "__annotations__"))
            # What was there before the job is frozen and not listed.
            and all(type(found) in _HARMLESS for found in gc.get_objects())
        )

    def _execute(self, main: types.ModuleType) -> int:
        words = self._argv[3:] if self._form in ("-c", "-m", "rank") else self._argv[2:]
        match self._form:
            case "-c":
                self._begin("", ["-c", *words])
                exec(_compile(f"{self._argv[2]}\n", "<string>"), main.__dict__)  # noqa: S102 - the job
            case "-m":
                self._begin(os.getcwd(), ["-m", *words])  # noqa: PTH109 - a string, as Python has it
                import runpy

                runpy._run_module_as_main(self._argv[2])  # type: ignore[attr-defined]  # noqa: SLF001 - what `python -m` calls
            case "rank":
                self._begin("", ["-c", *words])
                rank_main.main()
            case _:
                return self._execute_script(main)
        return 0

    def _begin(self, path: str, argv: list[str]) -> None:
        if not sys.flags.safe_path:
            sys.path.insert(0, path)
        sys.argv = argv

    def _execute_script(self, main: types.ModuleType) -> int:
        script = self._argv[1]
        # As CPython makes it absolute: nothing is resolved.
        path = script if script.startswith("/") else f"{os.getcwd()}/{script}"  # noqa: PTH109
        importer = _find_importer(path)
        if importer is not None:  # a folder or an archive with a `__main__` in it
            sys.path.insert(0, path)
            sys.argv = self._argv[1:]
            import runpy

            runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]  # noqa: SLF001
            return 0
        self._begin(os.path.dirname(os.path.realpath(script)), self._argv[1:])  # noqa: PTH120
        try:
            with io.open_code(path) as source:
                text = source.read()
        except OSError as error:
            print(f"{self._argv[0]}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)  # noqa: T201
            return 2
        main.__dict__.update(__loader__=importlib.machinery.SourceFileLoader("__main__", path), __file__=path, __cached__=None)
        exec(_compile(text, path), main.__dict__)  # noqa: S102 - the job
        return 0


def _streams() -> list[int]:
    """The standard streams by identity: a job's own may compare as it likes."""
    return [id(getattr(sys, name, None)) for name in ("stdin", "stdout", "stderr")]


def _leave_at_once(code: int) -> None:
    """End the process, unless its output can't be written: Python has words for that."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    _LIBC.fflush(None)
    os._exit(code)


def _make_main() -> types.ModuleType:
    """A `__main__` as Python makes it."""
    main = types.ModuleType("__main__")
    main.__dict__["__loader__"] = importlib.machinery.BuiltinImporter
    if "__annotations__" in sys.modules["__main__"].__dict__:  # up to Python 3.13
        main.__annotations__ = {}
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    return main


def _compile(text: str | bytes, name: str) -> types.CodeType:
    try:
        if isinstance(text, bytes) and b"coding" not in text[:4096]:
            text.decode()  # `compile` does not look at the bytes of a comment
        return compile(text, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        # Python words some errors of a file otherwise than `compile` does. Nothing of the job has run.
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606


def _find_importer(path: str) -> object | None:
    """What `python PATH` asks before it opens a script: whether PATH is something to import from."""
    for hook in sys.path_hooks:
        try:
            importer = hook(path)
        except ImportError:
            continue
        sys.path_importer_cache[path] = importer
        return importer
    sys.path_importer_cache[path] = None  # as Python has it there
    return None


def _show_nothing(*_: object) -> None:
    """For what has been shown already."""


def _show(error: BaseException) -> int:
    """Print an uncaught exception as Python does, without the frames of this file; returns the exit code."""
    tail = error.__traceback__
    while tail is not None and tail.tb_frame.f_code.co_filename == _OURS:
        tail = tail.tb_next
    error.__traceback__ = tail
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, tail
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, tail)
    except SystemExit:  # the hook's own wish
        raise
    except BaseException as hook_error:  # noqa: BLE001 - as Python does
        hook_tail = hook_error.__traceback__
        hook_error.__traceback__ = hook_tail.tb_next if hook_tail is not None else None
        hook_error.__context__ = None
        print("Error in sys.excepthook:", file=sys.stderr)  # noqa: T201
        sys.__excepthook__(type(hook_error), hook_error, hook_error.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)  # noqa: T201
        sys.__excepthook__(type(error), error, tail)
    return 1
