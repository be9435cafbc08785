"""Runs one Python job in an interpreter that is warm already, and ends it the way Python ends a program.

What comes before (streams, environment, place) is `parked.py`'s. Runs in the job's own process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib.machinery
import io
import os
import signal
import sys
import types
from typing import NoReturn

from gpulayer.runtime import interpreter_end, rank_main

_OURS = __file__
_LIBC = ctypes.CDLL(None)  # loaded before the fork


class ParkedJob:
    """One job.

    Args:
        form: `-c`, `-m`, `script`, or `rank` for a script under `rank_main`.
        argv: the command with which it would start as a new program.
        task_keeper: told with SIGUSR1 once the job's own code is through.
    """

    def __init__(self, form: str, argv: list[str], task_keeper: int) -> None:
        self._form = form
        self._argv = argv
        self._task_keeper = task_keeper
        self._pid = os.getpid()
        self._loaded = len(sys.modules)

    def run(self) -> NoReturn:
        """Run it and leave with its exit code."""
        sys.modules["__main__"] = _make_main()
        code = 0
        is_interrupt = False
        try:
            # Only here: until its own code runs, a signal ends a program without a traceback.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            code = self._execute(sys.modules["__main__"])
        except SystemExit as exit_request:
            code = interpreter_end.exit_code(exit_request)
        except BaseException as error:  # noqa: BLE001 - what Python itself does at the bottom of a program
            is_interrupt = type(error) is KeyboardInterrupt
            code = _show(error)
        self._end(code, is_interrupt=is_interrupt)

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

    # ---- the end

    def _end(self, code: int, *, is_interrupt: bool) -> NoReturn:
        if code == 0 and os.getpid() == self._pid:  # a process that the job forked ends as any other
            with contextlib.suppress(KeyboardInterrupt):  # Python goes on to its exit handlers
                interpreter_end.join_threads()
                interpreter_end.join_processes()
            self._tell_returned()
        interpreter_end.run_exit_handlers()
        is_flushed = _flush_standard_streams(is_told=True)
        # Other threads run on in what would be taken away; at Python's own end they stand still.
        if len(sys._current_frames()) == 1:  # noqa: SLF001 - counts all threads that run Python
            sys.last_type = sys.last_value = sys.last_traceback = None
            sys.modules.pop("__main__", None)
            gc.collect()  # ends the objects that only `__main__` held
            _flush_standard_streams(is_told=False)
        interpreter_end.flush_open_files()
        _LIBC.fflush(None)
        if is_interrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        os._exit(code if is_flushed else 120)  # CPython's number for output that could not be written

    def _tell_returned(self) -> None:
        """Say that what comes now is the exit's and not the job's, where there may be anything that takes time."""
        if atexit._ncallbacks() == 0 and len(sys.modules) <= self._loaded:  # noqa: SLF001
            return
        if os.getppid() == self._task_keeper:
            os.kill(self._task_keeper, signal.SIGUSR1)


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
    except SystemExit as exit_request:  # the hook's own wish
        return interpreter_end.exit_code(exit_request)
    except BaseException as hook_error:  # noqa: BLE001 - as Python does
        hook_tail = hook_error.__traceback__
        hook_error.__traceback__ = hook_tail.tb_next if hook_tail is not None else None
        hook_error.__context__ = None
        print("Error in sys.excepthook:", file=sys.stderr)  # noqa: T201
        sys.__excepthook__(type(hook_error), hook_error, hook_error.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)  # noqa: T201
        sys.__excepthook__(type(error), error, tail)
    return 1


def _flush_standard_streams(*, is_told: bool) -> bool:
    """False where stdout could not be written; Python says so and exits with 120."""
    is_flushed = True
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - any stream that the job put there
        is_flushed = False
        try:
            if is_told:
                print(f"Exception ignored in: {sys.stdout!r}\n{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
        except Exception:  # noqa: BLE001, S110 - nowhere to say it
            pass
    try:
        if sys.stderr is not None and not sys.stderr.closed:
            sys.stderr.flush()
    except Exception:  # noqa: BLE001, S110 - as above
        pass
    return is_flushed
