"""A Python job in a parked interpreter is the job that a new program runs: the same scripts both ways, compared."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.runtime import RunningTask, WatchedProcess, rank_argv, start_task

from gpulayer.runtime.task_processes import StartFailed

SCRIPT = ["python", "main.py", "one", "--two"]


def run_both(keeper, monkeypatch, workspace, files, argv, **options) -> tuple[RunningTask, RunningTask]:
    """The same job as a new program and in a parked interpreter, one after the other in the same folder."""
    tasks = []
    for mode in ("cold", "auto"):
        monkeypatch.setenv("GPULAYER_START", mode)
        task = start_task(keeper, workspace, files, argv=argv, **options)
        result = task.result()
        assert result.ranks[0].cold_reason == ("GPULAYER_START=cold" if mode == "cold" else None)
        tasks.append(task)
    return tasks[0], tasks[1]


def said(task: RunningTask) -> tuple[object, ...]:
    result = task.result()
    texts = [bytes(task.events.output.get((0, stream), b"")).decode(errors="backslashreplace") for stream in ("stdout", "stderr")]
    texts = [re.sub(r" at 0x[0-9a-f]+", "", text) for text in texts]  # which differ between any two processes
    return result.state, result.ranks[0].exit_code, result.ranks[0].signal, *texts


def assert_same(both) -> tuple[object, ...]:
    cold, warm = (said(task) for task in both)
    assert warm == cold
    return cold


@pytest.fixture
def both(keeper, monkeypatch, tmp_path):
    return lambda files, argv=SCRIPT, **options: run_both(keeper, monkeypatch, tmp_path, files, argv, **options)


LOOK = """
    import sys
    import faulthandler, gc, os, resource, signal, threading, tracemalloc, warnings
    def show(name, value):
        print(name, value)
    for name in ("argv", "orig_argv", "path", "flags", "executable", "prefix", "dont_write_bytecode", "warnoptions", "meta_path",
                 "path_hooks", "byteorder", "hexversion", "implementation", "_xoptions", "pycache_prefix", "flags"):
        show(name, getattr(sys, name))
    main = sys.modules["__main__"].__dict__
    show("main", {key: value if key != "__loader__" else type(value) for key, value in main.items() if key.startswith("__")})
    show("main names", sorted(key for key in main if not key.startswith("__")))
    show("cwd", os.getcwd())
    show("umask", os.umask(0o022))
    show("limits", [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")])
    files = [int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)]
    show("files", [(file, os.get_inheritable(file)) for file in sorted(files)])
    show("null", os.path.realpath("/proc/self/fd/0"))
    show("signals", [(number, signal.getsignal(number)) for number in sorted(signal.valid_signals())])
    show("mask", signal.pthread_sigmask(signal.SIG_BLOCK, []))
    status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
    show("masks", [status[name] for name in ("SigBlk", "SigIgn", "SigCgt", "Threads", "NoNewPrivs", "Seccomp", "Name")])
    show("leads", os.getsid(0) == os.getpid() == os.getpgid(0))
    environ = {key: value for key, value in os.environ.items() if key != "GPULAYER_CHANNEL"}
    show("environ", environ)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        show("stream", (stream, stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering, stream.write_through,
                        stream.newlines, stream.fileno(), stream.isatty(), type(stream.buffer), stream.buffer.mode))
        raw = getattr(stream.buffer, "raw", stream.buffer)
        show("raw", (type(raw), raw.name, raw.mode, raw.closefd))
    show("originals", (sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__))
    show("stdin", sys.stdin.read())
    show("threads", (threading.enumerate(), threading.main_thread() is threading.current_thread(),
                     threading.main_thread().ident == threading.get_ident(), threading.main_thread().native_id == os.getpid()))
    show("gc", (gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.callbacks))
    show("traced", (tracemalloc.is_tracing(), sys.gettrace(), sys.getprofile(), faulthandler.is_enabled()))
    show("filters", warnings.filters)
    show("hooks", (sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook))
    show("niceness", (os.nice(0), sys.getswitchinterval(), sys.getrecursionlimit()))
    """


def look(task: RunningTask) -> str:
    """Addresses and the thread's number differ between any two processes."""
    return re.sub(r" at 0x[0-9a-f]+|started \d+", "", task.events.text())


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(["python", "-c", textwrap.dedent(LOOK), "one", "-c"], id="-c"),
        pytest.param(["python", "-m", "package.look", "one", "-m"], id="-m"),
        pytest.param(["python", "-m", "package"], id="-m package"),
        pytest.param(SCRIPT, id="script"),
        pytest.param(["python", "./main.py"], id="./script"),
        pytest.param(["python", "package/../main.py"], id="unresolved"),
        pytest.param(["python", "link.py"], id="link"),
        pytest.param(["python", "package"], id="folder"),
        pytest.param(rank_argv("main.py", "one"), id="rank"),
    ],
)
@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_what_a_script_sees(both, tmp_path, argv, unbuffered):
    for folder in ("source", "source/package"):
        (tmp_path / folder).mkdir()
    (tmp_path / "source" / "link.py").symlink_to("package/look.py")
    files = {"main.py": LOOK, "package/__init__.py": "", "package/__main__.py": LOOK, "package/look.py": LOOK}
    cold, warm = both(files, argv, env={"A": "é", "PYTHONUNBUFFERED": unbuffered})
    assert cold.result().state == "succeeded", cold.events.text(stream="stderr")
    assert look(warm).splitlines() == look(cold).splitlines()
    assert warm.events.text(stream="stderr") == cold.events.text(stream="stderr")


def test_the_documented_differences_and_no_others(both):
    source = """
        import gc, inspect, os, sys
        print(hash("text"))
        print(sorted(sys.modules))
        print(gc.get_freeze_count() > 0)
        print(len(inspect.stack()))
        print(open("/proc/self/cmdline").read())
        """
    cold, warm = both({"main.py": source})
    cold_hash, cold_modules, cold_frozen, cold_frames, cold_line = cold.events.text().splitlines()
    warm_hash, warm_modules, warm_frozen, warm_frames, warm_line = warm.events.text().splitlines()
    again = both({"main.py": source})
    assert again[0].events.text().splitlines()[0] != cold_hash
    assert again[1].events.text().splitlines()[0] == warm_hash
    loaded = {name for name in eval(warm_modules) if name not in eval(cold_modules)}
    assert not {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names}
    assert not loaded & {"random", "asyncio", "logging", "subprocess", "multiprocessing", "importlib.metadata", "email", "ssl"}
    assert (cold_frozen, warm_frozen) == ("False", "True")
    assert (int(cold_frames), int(warm_frames) > 1) == (1, True)
    assert "main.py" in cold_line
    assert "gpulayer.runtime.keeper" in warm_line


ENDS = [
    pytest.param("raise SystemExit", id="SystemExit"),
    "raise SystemExit(None)",
    "import sys; sys.exit(0)",
    "import sys; sys.exit(3)",
    "import sys; sys.exit(True)",
    "import sys; sys.exit(256 + 5)",
    "import sys; sys.exit(-1)",
    "import sys; sys.exit(2 ** 70)",
    "import sys; sys.exit('text')",
    "import sys; sys.exit(('a', 1))",
    "import os; print('lost?', flush=True); os._exit(7)",
    "import os; os.abort()",
    "import os; os.kill(os.getpid(), 9)",
    "import faulthandler; faulthandler._sigsegv()",
    "raise KeyboardInterrupt",
    "raise ValueError('boom')",
    "assert 1 == 2, 'text'",
    "1 +",
    "import no_such_module",
    "import os; os.close(1); print('x')",
    "import sys; sys.stdout.close()",
    "import atexit, os; atexit.register(print, 'first'); atexit.register(print, 'second'); print('main')",
    "import atexit; atexit.register(lambda: 1 / 0)",
    "import atexit, os; atexit.register(os._exit, 4)",
    "import atexit, os; atexit.register(os.abort)\nraise SystemExit(2)",
    "import atexit, os; atexit.register(os.abort)",
    "import atexit, os, signal; atexit.register(os.kill, os.getpid(), signal.SIGKILL)",
    "import atexit, ctypes; atexit.register(ctypes.string_at, 0)",
    "import sys; sys.excepthook = lambda *args: print('hook', args[0]); raise ValueError",
    "import sys; sys.excepthook = lambda *args: 1 / 0\nraise ValueError('first')",
    "import sys; sys.excepthook = lambda *args: sys.exit(9)\nraise ValueError('first')",
    "class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E",
    "raise BaseExceptionGroup('many', [ValueError(1), KeyboardInterrupt()])",
    "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError('second') from error",
    "def f(n):\n    g(n)\ndef g(n):\n    raise ValueError(n)\nf(3)",
    "import warnings; warnings.warn('careful')",
    "import threading\ndef f(): raise ValueError('in a thread')\nthread = threading.Thread(target=f)\nthread.start(); thread.join()",
    "import os\nif os.fork() == 0:\n    raise SystemExit(5)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))",
    "import os, atexit\natexit.register(lambda: print('end'))\nif os.fork():\n    os.wait()",
    "file = open('../output/left', 'w'); file.write('kept')\nimport os; print(os.stat('../output/left').st_size)",
    "class D:\n    def __del__(self): print('destroyed', NAME)\nNAME = 'd'\nd = D()",
    "import tempfile; kept = tempfile.NamedTemporaryFile(dir='../output', prefix='temp')",
    "import sys\nsys.setrecursionlimit(200)\ndef f(): f()\ntry: f()\nexcept RecursionError as error: print(error)",
    "raise SyntaxError('not of a parser')",
    "print('\\udcff')",
    "print('é漢🙂', '\\udcff', file=__import__('sys').stderr)",
]


@pytest.mark.parametrize("form", ["-c", "-m", "script"])
@pytest.mark.parametrize("source", ENDS)
def test_how_it_ends_and_what_it_prints(both, tmp_path, source, form):
    argv = {"-c": ["python", "-c", source], "-m": ["python", "-m", "main"], "script": ["python", "main.py"]}[form]
    # Buffered, so that what an exit forgets to flush is missed.
    tasks = both({"main.py": source}, argv, env={"PYTHONUNBUFFERED": ""}, grace_seconds=60)
    assert_same(tasks)
    if "'left'" in source:
        assert (tmp_path / "output" / "left").read_text() == "kept"
    assert not list((tmp_path / "output").glob("temp*"))


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "missing.py"],
        ["python", "empty"],
        ["python", "-m", "missing"],
        ["python", "-m", "empty"],
        ["python", "-m", "package.missing"],
        ["python", "-m", "relative"],
        ["python", "-m", "package.relative", "x"],
        ["python", "latin.py"],
        ["python", "nul.py"],
        ["python", "tabs.py"],
        ["python", "bom.py"],
        ["python", "crlf.py"],
        ["python", "noread.py"],
        ["python", "-c", "def f():\n  return\n return"],
        ["python", "-c", "print('\t')"],
        ["python3", "crlf.py"],
    ],
    ids=" ".join,
)
def test_programs_that_are_wrong_or_odd(both, tmp_path, argv):
    for folder in ("source", "source/empty", "source/package"):
        (tmp_path / folder).mkdir()
    source = tmp_path / "source"
    (source / "latin.py").write_bytes(b"print('\xe9')\n")
    (source / "nul.py").write_bytes(b"print(1)\0\n")
    (source / "tabs.py").write_bytes(b"if 1:\n\tprint(1)\n        print(2)\n")
    (source / "bom.py").write_bytes(b"\xef\xbb\xbfprint('\xc3\xa9')\n")
    (source / "crlf.py").write_bytes(b"# coding: latin-1\r\nprint('\xe9')\r\nimport sys; print(sys.executable)\r\n")
    os.mkfifo(source / "fifo")
    (source / "noread.py").symlink_to("noread.py")
    files = {
        "relative.py": "from . import f",
        "package/__init__.py": "print(__name__)",
        "package/relative.py": "from . import f",
        "package/f.py": "",
    }
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    assert_same(both(files, argv, env={"PATH": path}))


def test_random_numbers_differ_between_jobs(both):
    source = "import random, numpy, uuid; print(random.random(), numpy.random.rand(), uuid.uuid4())"
    seen = [task.events.text() for _ in range(2) for task in both({"main.py": source})]
    assert len(set(seen)) == 4


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_from_a_main_guard(both, method):
    source = f"""
        import multiprocessing, os, sys
        print("imported as", __name__, sys.argv, flush=True)
        def double(x):
            return 2 * x, __name__, sys.flags
        if __name__ == "__main__":
            with multiprocessing.get_context("{method}").Pool(1) as pool:
                print(pool.map(double, [1, 2]))
            process = multiprocessing.get_context("{method}").Process(target=print, args=("in a process",))
            process.start()
        """
    assert_same(both({"main.py": source}))


def test_what_a_job_starts_gets_the_environment_and_the_place(both):
    source = """
        import os, subprocess, sys
        print(subprocess.check_output(["env"], text=True).replace(os.environ.pop("GPULAYER_CHANNEL"), ""))
        print(subprocess.run([sys.executable, "-c", "import sys; print(sys.flags, sys.path); raise SystemExit(4)"]))
        os.environ["B"] = "set"; os.unsetenv("A")
        os.system("echo $A $B; pwd; umask; ulimit -a")
        """
    assert_same(both({"main.py": source}, env={"A": "1"}))


def test_native_output_is_as_buffered_as_pythons(both):
    source = "import ctypes, os; ctypes.CDLL(None).printf(b'native '); os.write(1, b'direct ')"
    assert assert_same(both({"main.py": source}, env={"PYTHONUNBUFFERED": ""}))[3] == "direct native "
    assert assert_same(both({"main.py": source}))[3] == "native direct "


def test_peak_memory_is_the_jobs(both, monkeypatch):
    cold, warm = both({"main.py": "x = bytearray(200_000_000)"})
    for task in (cold, warm):
        (rank,) = task.process._ranks
        assert 200_000_000 < rank.exit.peak_bytes < 300_000_000


def test_a_limit_of_the_start_is_refused_alike(keeper):
    found = []
    for form in (None, "-c"):
        for where in ({"cwd": "/no/such/folder"}, {"cwd": "/", "limits": {"RLIMIT_NOFILE": (1 << 40, 1 << 40)}}):
            task = keeper.open_task(lambda _: None, lambda: None)
            with pytest.raises(StartFailed) as refused:
                task.start_process([sys.executable, "-c", ""], env={}, stdout=1, stderr=2, form=form, **where)
            found.append(str(refused.value))
            task.close()
    assert found[:2] == found[2:]
    assert found[0] == f"working directory /no/such/folder: {os.strerror(errno.ENOENT)}"
    assert found[1].startswith("limit RLIMIT_NOFILE: ")


def test_a_daemon_left_behind_by_a_parked_job_is_ended_and_the_next_job_runs(both):
    source = """
        import subprocess
        print(subprocess.Popen(["sleep", "1000"], start_new_session=True).pid)
        """
    for task in both({"main.py": source}):
        assert WatchedProcess(int(task.events.text())).has_ended()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_before_and_in_the_job(keeper, monkeypatch, tmp_path, number):
    source = """
        import select
        try:
            print("ready", flush=True)
            while True:  # in short turns: Python misses a signal between its own check and the system call
                select.select([], [], [], 0.05)
        finally:
            print("unwound")
        """
    ends = []
    for mode in ("cold", "auto"):
        monkeypatch.setenv("GPULAYER_START", mode)
        task = start_task(keeper, tmp_path, {"main.py": source}, argv=SCRIPT)
        task.events.wait_for("ready\n")
        task.process._inbox.put(lambda task=task: task.process._signal_rank(next(iter(task.process._ranks)), number))
        task.result()
        *end, stderr = said(task)
        # Which line it interrupts is the moment's matter.
        ends.append((*end, stderr.splitlines()[-1:]))
    assert ends[0] == ends[1]
    assert ends[0][2] == number


ENDS = {
    "a file left open beside a function": "def main(): pass\nf = open('../output/left', 'w'); f.write('kept')",
    "a compressed file left open": "import gzip\ndef main(): pass\nf = gzip.open('../output/left', 'wt'); f.write('kept')",
    "output left in a stream of the job's own": "import os\ndef main(): pass\nf = os.fdopen(os.dup(1), 'w'); f.write('kept')",
    "objects that only main holds": (
        "import signal\nclass D:\n    def __del__(self): print('closing')\n"
        "signal.signal(signal.SIGTERM, lambda *_: None); d = D(); d.self = d"
    ),
    "a generator that was not finished": "def g():\n    try: yield\n    finally: print('through')\nx = g(); next(x)",
    "an object in another module": "import json\nclass D:\n    def __del__(self): print('gone')\njson.d = D()",
    "a coroutine that was never awaited": "async def f(): pass\nx = f()",
    "a manager that is not shut down": (
        "import multiprocessing\nif __name__ == '__main__':\n    p = multiprocessing.Manager(); l = p.list(); print('END')"
    ),
    "a process that a handler ends": (
        "import atexit, multiprocessing, time\n"
        "if __name__ == '__main__':\n"
        "    p = multiprocessing.Process(target=time.sleep, args=(60,)); p.start(); atexit.register(p.terminate); print('END')"
    ),
    "stdout taken apart": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8')\nprint('hi')",
    "a hand-made stdout": (
        "import sys\nclass Tee:\n    def write(self, t): sys.__stdout__.write(t)\n    def flush(self): sys.__stdout__.flush()\n"
        "sys.stdout = Tee(); print('hi')"
    ),
    "no stdout": "import sys\ndel sys.stdout",
    "a stdout that can't be flushed": "import sys\nsys.stdout = open('/dev/full', 'w'); print('x')",
    "a daemon thread in a write": (
        "import os, threading\nr, w = os.pipe(); f = os.fdopen(w, 'wb')\n"
        "threading.Thread(target=lambda: f.write(b'x' * 10_000_000), daemon=True).start()\nos.read(r, 1); print('END')"
    ),
    "a signal to the parent": "import os, signal\nos.kill(os.getppid(), signal.SIGURG); print('END')",
    "an exit code that can't be shown": "import sys\nclass O:\n    def __str__(self): raise ValueError\nsys.exit(O())",
    "a hook at the end": "import sys; sys.unraisablehook = lambda a: print('hook')\nclass D:\n    def __del__(self): 1 / 0\nd = D()",
    "a profiler left on": "import sys; sys.setprofile(lambda *_: None); print('x')",
    "native output": "import ctypes; ctypes.CDLL(None).printf(b'native')",
    "an interrupt": "raise KeyboardInterrupt",
    "an interrupt of its own kind": "class K(KeyboardInterrupt): pass\nraise K('x')",
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("unbuffered", ["1", "0"])
def test_ends(both, tmp_path, end, unbuffered):
    tasks = both({"main.py": ENDS[end]}, env={"PYTHONUNBUFFERED": unbuffered}, timeout_seconds=60)
    assert_same(tasks)
    left = tmp_path / "output" / "left"
    assert not left.exists() or left.stat().st_size > 0


def test_an_exit_handler_that_hangs_has_the_jobs_time(both):
    source = "import atexit, signal; atexit.register(signal.pause); print('END')"
    assert_same(both({"main.py": source}, timeout_seconds=2, grace_seconds=0.5))


def test_bytes_of_a_comment_that_are_no_text(both, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "main.py").write_bytes(b"# caf\xe9\nprint(1)\n")
    assert_same(both({}, SCRIPT))


@pytest.mark.parametrize(
    "options", [{"argv": ["python", "-c", "pass" + " " * 150_000]}, {"env": {"A": "y" * 200_000}}], ids=["word", "variable"]
)
def test_words_that_are_too_long_for_a_program(keeper, tmp_path, options):
    task = start_task(keeper, tmp_path, {}, **{"argv": ["python", "-c", "pass"], **options})
    assert task.result().failure.reason == "start"
    assert "long" in task.result().failure.message


@pytest.mark.parametrize(
    ("source", "is_at_once"),
    [
        ("print(1)", True),
        ("def f(): pass\nx = 1", True),
        ("x = open('/dev/null')", False),
        ("import csv", False),
        ("class D: pass", False),
        ("import atexit; atexit.register(print)", False),
        ("import sys; sys.stdout = sys.stderr", False),
        ("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()", False),
        ("def g(): yield\nx = g()", False),
    ],
)
def test_a_job_that_leaves_nothing_is_spared_pythons_end(source, is_at_once):
    program = """
        import gc, os, sys
        from gpulayer.runtime.parked_job import ParkedJob
        import threading, atexit
        job = ParkedJob("-c", ["python", "-c", sys.argv[1]])
        os._exit = lambda code: print("at once", file=sys.__stdout__, flush=True)
        compile("pass", "", "exec")  # as the rehearsal does: the first makes the classes of `ast`
        gc.collect(); gc.freeze()
        job.run()
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), source], capture_output=True, text=True, check=True)
    assert ("at once" in done.stdout) is is_at_once
