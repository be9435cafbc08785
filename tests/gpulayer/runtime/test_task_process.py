from __future__ import annotations

import errno
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

import pytest
from support.runtime import WatchedProcess, rank_argv, start_task

from gpulayer.runtime.channel import Channel
from gpulayer.runtime.output import OutputReader
from gpulayer.runtime.process import Keeper
from gpulayer.runtime.task_keeper_link import TaskKeeperLink
from gpulayer.runtime.task_process import TaskProcess
from gpulayer.runtime.task_processes import TaskProcesses

pytestmark = pytest.mark.usefixtures("start")

GRACE = 1.0


def test_a_script_runs_as_python_would_run_it(keeper, tmp_path):
    task = start_task(
        keeper,
        tmp_path,
        {
            "neighbour.py": "NAME = 'neighbour'",
            "json.py": "raise ImportError('a module of the user stood in for one of ours')",
            "main.py": """
                import inspect, sys
                import neighbour
                def f():
                    return 1
                print(sys.argv, __name__, __file__ == sys.path[0] + "/main.py", neighbour.NAME)
                print(inspect.getsource(f).strip(), sys.modules["__main__"].f is f, sys.stdin.read() == "")
                """,
        },
        argv=rank_argv("main.py", "--flag", "value"),
    )
    result = task.result()
    assert result.state == "succeeded", task.events.output
    assert result.ranks[0].returned
    assert result.ranks[0].exit_code == 0
    assert task.events.text().splitlines() == [
        "['main.py', '--flag', 'value'] __main__ True neighbour",
        "def f():",
        "    return 1 True True",
    ]


def test_workers_that_a_script_spawns_import_it_again(keeper, tmp_path):
    source = """
        import multiprocessing
        def double(x):
            return 2 * x
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [1, 2]))
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    assert task.result().state == "succeeded", task.events.output
    assert task.events.text() == "[2, 4]\n"


@pytest.mark.parametrize(
    ("source", "exit_code", "number", "message"),
    [
        pytest.param("raise SystemExit(256 + 5)", 5, None, "Rank 0 exited with code 5", id="only 8 bits"),
        ("import sys; sys.exit(3)", 3, None, "Rank 0 exited with code 3"),
        ("import sys; sys.exit('text')", 1, None, "Rank 0 exited with code 1"),
        ("import os; os._exit(7)", 7, None, "Rank 0 exited with code 7"),
        ("import os; os.abort()", None, signal.SIGABRT, "Rank 0 was ended by SIGABRT"),
        ("import faulthandler; faulthandler._sigsegv()", None, signal.SIGSEGV, "Rank 0 was ended by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", None, signal.SIGKILL, "somebody sent the signal"),
        ("def f(:", 1, None, "Rank 0 raised SyntaxError"),
        ("raise KeyboardInterrupt", 130, None, "Rank 0 raised KeyboardInterrupt"),
    ],
)
def test_how_a_rank_ends_is_kept(keeper, tmp_path, source, exit_code, number, message):
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    result = task.result()
    assert result.state == "failed"
    assert (result.ranks[0].exit_code, result.ranks[0].signal) == (exit_code, number)
    assert result.failure is not None
    assert message in result.failure.message
    assert (result.failure.reason, result.failure.rank, result.failure.device) == ("rank", 0, "cpu:0")
    assert len(task.events.failures) == 1


@pytest.mark.parametrize("source", ["import sys; sys.exit()", "import sys; sys.exit(0)", "import os; os._exit(0)", ""])
def test_ends_that_are_a_success(keeper, tmp_path, source):
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    assert task.result().state == "succeeded"
    assert task.events.failures == []


def test_the_text_of_sys_exit_is_on_stderr(keeper, tmp_path):
    task = start_task(keeper, tmp_path, {"main.py": "import sys; sys.exit('no data')"}, argv=rank_argv())
    assert task.result().failure.last_lines == ("no data",)


def test_an_exception_is_reported_with_a_traceback_of_the_script_alone(keeper, tmp_path):
    source = """
        import atexit
        atexit.register(print, "exit handler")
        def f():
            print("before")
            raise ValueError("boom")
        f()
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv(), env={"PYTHONUNBUFFERED": ""})
    result = task.result()
    error = result.failure.error
    assert (error.type, error.message) == ("ValueError", "boom")
    assert "rank_main" not in error.traceback
    assert 'raise ValueError("boom")' in error.traceback
    assert task.events.text(stream="stderr") == error.traceback
    assert task.events.text() == "before\nexit handler\n"
    assert result.ranks[0].error == error


def test_a_plain_command(keeper, tmp_path):
    task = start_task(keeper, tmp_path, {}, argv=["sh", "-c", "pwd; echo err >&2; exit 4"])
    result = task.result()
    assert result.ranks[0].exit_code == 4
    assert task.events.text() == f"{tmp_path / 'source'}\n"
    assert task.events.text(stream="stderr") == "err\n"


def test_python_means_the_workers_interpreter(keeper, tmp_path):
    task = start_task(keeper, tmp_path, {}, argv=["python", "-c", "import sys; print(sys.executable)"])
    assert task.result().state == "succeeded"
    assert task.events.text() == f"{sys.executable}\n"


def test_a_command_that_does_not_exist(keeper, tmp_path):
    task = start_task(keeper, tmp_path, {}, argv=["no-such-program"])
    result = task.result()
    assert result.failure.reason == "start"
    assert "no-such-program: No such file or directory" in result.failure.message
    assert not task.events.started.is_set()


def test_the_kernels_writes_to_fd_1_and_a_closed_stdout(keeper, tmp_path):
    source = """
        import os, sys
        os.write(1, b"native\\n")
        os.system("echo child")
        sys.stdout.close()
        os.close(1)
        print("still here", file=sys.stderr)
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    assert task.result().state == "succeeded"
    assert task.events.text() == "native\nchild\n"
    assert task.events.text(stream="stderr") == "still here\n"


def test_bytes_are_passed_on_as_they_are(keeper, tmp_path):
    source = """
        import os
        for _ in range(300):
            for byte in "é漢🙂\\r".encode():
                os.write(1, bytes([byte]))
        os.write(1, b"\\xff\\x00" + b"x" * 3_000_000 + b"END")
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    assert task.result().state == "succeeded"
    assert bytes(task.events.output[0, "stdout"]) == "é漢🙂\r".encode() * 300 + b"\xff\x00" + b"x" * 3_000_000 + b"END"


def test_a_daemon_left_behind_is_ended_and_does_not_hold_the_task(keeper, tmp_path):
    source = """
        import os, signal
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.write(writer, b"%d" % os.getpid())
                signal.pause()
            os._exit(0)
        print(os.read(reader, 20).decode(), flush=True)
        signal.pause()
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    task.events.wait_for("\n")
    with_daemon = WatchedProcess(int(task.events.text()))
    assert not with_daemon.has_ended()
    task.process.stop("kill")
    assert task.result().state == "cancelled"
    assert with_daemon.has_ended()
    with_daemon.close()


def test_a_daemon_does_not_outlive_a_success(keeper, tmp_path):
    source = """
        import subprocess, sys
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        print(child.pid)
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    assert task.result().state == "succeeded"
    assert WatchedProcess(int(task.events.text())).has_ended()


def test_cancel_lets_python_unwind(keeper, tmp_path):
    source = """
        import select
        try:
            print("ready", flush=True)
            while True:  # in short turns: Python misses a signal between its own check and the system call
                select.select([], [], [], 0.05)
        finally:
            open("../output/saved", "w").close()
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    task.events.wait_for("ready")
    task.process.stop("cancel")
    result = task.result()
    assert result.state == "cancelled"
    assert result.failure is None
    assert result.ranks[0].exit_code == 130
    assert (tmp_path / "output" / "saved").exists()
    assert task.events.failures == []


def test_cancel_uses_a_handler_for_sigterm_and_waits_for_it(keeper, tmp_path):
    source = """
        import signal, sys, threading
        def save(*_):
            threading.Event().wait(1.5)
            open("../output/saved", "w").close()
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        print("ready", flush=True)
        signal.pause()
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv(), grace_seconds=60)
    task.events.wait_for("ready")
    task.process.stop("cancel")
    assert task.result().state == "cancelled"
    assert (tmp_path / "output" / "saved").exists()


STUBBORN = """
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        signal.pause()
    """


@pytest.mark.parametrize("reason", ["cancel", "collateral", "kill"])
def test_a_rank_that_ignores_signals_is_killed_after_its_grace(keeper, tmp_path, reason):
    task = start_task(keeper, tmp_path, {"main.py": STUBBORN}, argv=rank_argv(), grace_seconds=GRACE)
    task.events.wait_for("ready")
    task.process.stop(reason)
    result = task.result(30)
    assert result.state == "cancelled"
    assert result.ranks[0].signal == signal.SIGKILL
    assert result.ranks[0].collateral == (reason == "collateral")


def test_a_second_order_to_kill_ends_the_grace(keeper, tmp_path):
    task = start_task(keeper, tmp_path, {"main.py": STUBBORN}, argv=rank_argv(), grace_seconds=1000)
    task.events.wait_for("ready")
    task.process.stop("cancel")
    task.process.stop("kill")
    assert task.result(30).state == "cancelled"


def test_timeout(keeper, tmp_path):
    task = start_task(keeper, tmp_path, {"main.py": STUBBORN}, argv=rank_argv(), grace_seconds=GRACE, timeout_seconds=0.5)
    result = task.result(30)
    assert result.state == "failed"
    assert result.failure.reason == "timeout"
    assert "0.5 s" in result.failure.message


def test_an_exit_handler_that_hangs_does_not_turn_success_into_failure(keeper, tmp_path):
    source = "import atexit, signal; atexit.register(signal.pause); print('END')"
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv(), grace_seconds=GRACE)
    result = task.result(30)
    assert result.state == "succeeded"
    assert result.ranks[0].returned
    assert task.events.text() == "END\n"


@pytest.mark.parametrize("ends", ["", "raise SystemExit"])
@pytest.mark.parametrize("kind", ["threading.Thread", "multiprocessing.Process"])
def test_work_that_a_script_leaves_running_is_waited_for_as_python_does(keeper, tmp_path, kind, ends):
    source = f"""
        import multiprocessing, threading
        def work():
            threading.Event().wait(1.0)
            open("../output/saved", "w").close()
        if __name__ == "__main__":
            {kind}(target=work).start()
            print("left")
            {ends}
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv(), grace_seconds=0.2)
    assert task.result(30).state == "succeeded"
    assert (tmp_path / "output" / "saved").exists()


def test_cancel_ends_a_script_that_waits_for_its_threads(keeper, tmp_path):
    source = """
        import threading
        threading.Thread(target=threading.Event().wait).start()
        print("left", flush=True)
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv(), grace_seconds=GRACE)
    task.events.wait_for("left")
    task.process.stop("cancel")
    result = task.result(30)
    assert result.state == "cancelled"
    assert not result.ranks[0].returned


def test_cancel_of_a_shell_command_reaches_what_it_runs(keeper, tmp_path):
    # What it runs says that it is ready: a signal that comes while a shell is starting something is kept for after that.
    child = "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); print('ready', flush=True); signal.pause()"
    line = f"{shlex.quote(sys.executable)} child.py; echo never"
    task = start_task(keeper, tmp_path, {"child.py": child}, argv=["sh", "-c", line], grace_seconds=60)
    task.events.wait_for("ready")
    task.process.stop("cancel")
    assert task.result(30).state == "cancelled"
    assert "never" not in task.events.text()


def test_a_stranger_started_by_the_same_parent_lives(keeper, tmp_path):
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        task = start_task(keeper, tmp_path, {"main.py": STUBBORN}, argv=rank_argv())
        task.events.wait_for("ready")
        task.process.stop("kill")
        task.result(30)
        assert stranger.poll() is None
        stranger.kill()


def test_the_last_line_is_there_however_a_rank_ends(keeper, tmp_path):
    sources = {"main.py": "import os, sys; print('x' * 5000); print('END'); sys.stdout.flush(); os.abort() if len(sys.argv) > 1 else None"}
    tasks = [start_task(keeper, tmp_path / str(n), sources, argv=rank_argv("main.py", *["abort"][: n % 2])) for n in range(8)]
    for number, task in enumerate(tasks):
        assert task.result().state == ("failed" if number % 2 else "succeeded")
        assert task.events.text().endswith("END\n")


def test_nothing_is_left_in_tmp(tmp_path):
    source = "import os; print(os.environ['GPULAYER_CHANNEL'])"
    keeper = Keeper.start()
    channels = []
    for _ in range(2):
        task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
        task.result()
        channels.append(Path(task.events.text().strip()))
    assert channels[0] == channels[1]
    assert channels[0].is_socket()
    keeper.close()
    assert not channels[0].parent.exists()


class Full:
    """A disk with no room, wherever it is touched."""

    def __call__(self, *_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("place", ["task_keeper_pool.Channel", "output.os.pipe", "task_keeper_pool.socket.socketpair"])
def test_what_keeps_an_attempt_from_starting_is_its_result(keeper, tmp_path, monkeypatch, place):
    if "pool" in place:  # a spare needs none
        monkeypatch.setattr(keeper._pool, "_idle", deque())
    with monkeypatch.context() as patch:
        patch.setattr(f"gpulayer.runtime.{place}", Full())
        task = start_task(keeper, tmp_path, {"main.py": ""}, argv=rank_argv())
        result = task.result(30)
    assert result.state == "failed"
    assert result.failure.reason == "start"
    assert "No space left on device" in result.failure.message
    assert [failure.reason for failure in task.events.failures] == ["start"]


@pytest.mark.parametrize("step", [(OutputReader, "finish"), (Channel, "rest"), (TaskProcesses, "end"), (TaskProcess, "_build_result")])
def test_a_fault_at_the_end_is_the_result_and_nothing_is_left(keeper, tmp_path, monkeypatch, caplog, step):
    owner, name = step
    original = getattr(owner, name)

    def fail(self):
        if name != "end":  # a task keeper that isn't told ends what is left when its connection does
            original(self)
        raise RuntimeError("at the end")

    monkeypatch.setattr(owner, name, fail)
    task = start_task(keeper, tmp_path, {"main.py": FAULTY}, argv=rank_argv())
    task.events.wait_for("\n")
    rank = WatchedProcess(int(task.events.text()))
    task.process.stop("kill")
    result = task.result(30)
    assert result.state == "failed"
    assert "A fault in GPUlayer" in result.failure.message
    assert rank.has_ended(10)
    rank.close()


FAULTY = "import os, signal; print(os.getpid(), flush=True); signal.pause()"


def test_a_fault_in_supervision_ends_the_attempt_and_blames_no_rank(keeper, tmp_path, monkeypatch):
    monkeypatch.setattr("support.runtime.RecordedEvents.on_started", Full())
    task = start_task(keeper, tmp_path, {"main.py": FAULTY}, argv=rank_argv())
    result = task.result(30)
    assert result.state == "failed"
    assert result.failure.rank is None
    assert "A fault in GPUlayer" in result.failure.message


def test_output_that_cannot_be_taken_in_fails_the_attempt_and_holds_no_rank_up(keeper, tmp_path, monkeypatch):
    monkeypatch.setattr("support.runtime.RecordedEvents.on_output", Full())
    source = "import sys\nwhile True: sys.stdout.write('x' * 100_000)"
    result = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv()).result(30)
    assert result.state == "failed"
    assert result.failure.reason == "launcher"
    assert "No space left on device" in result.failure.message


def test_what_a_job_writes_to_the_channel_harms_nobody(keeper, tmp_path):
    source = """
        import json, os, socket, struct
        for body in (b"nonsense", b"[1]", b"{}", b'{"type": "failed"}', b'{"type": "hello", "rank": "x"}'):
            with socket.socket(socket.AF_UNIX) as channel:
                channel.connect(os.environ["GPULAYER_CHANNEL"])
                channel.sendall(struct.pack("!IB", len(body), 0) + body)
                channel.shutdown(socket.SHUT_WR)
                channel.recv(1)
        raise ValueError("and this one is heard")
        """
    result = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv()).result(30)
    assert result.failure.error.message == "and this one is heard"


@pytest.mark.parametrize("who", ["we", "somebody"])
def test_a_process_that_ends_before_it_begins_is_told_as_no_start(tmp_path, monkeypatch, who):
    keeper = Keeper.start()
    parked = []
    take = TaskKeeperLink.take_parked

    def take_stopped(link):
        parked.append(take(link))
        os.kill(parked[-1].pid, signal.SIGSTOP)
        return parked[-1]

    monkeypatch.setattr(TaskKeeperLink, "take_parked", take_stopped)
    launched = threading.Event()
    launch = TaskProcesses.launch
    monkeypatch.setattr(TaskProcesses, "launch", lambda self, *words, **options: (launch(self, *words, **options), launched.set())[0])
    task = start_task(keeper, tmp_path, {"main.py": "print('ran')"}, argv=rank_argv())
    assert launched.wait(10)
    if who == "we":
        task.process.stop("kill")
    else:
        os.kill(parked[0].pid, signal.SIGKILL)
    result = task.result(30)
    assert not task.events.started.is_set()
    assert task.events.text() == ""
    assert result.ranks[0].start is None
    if who == "we":
        assert result.state == "cancelled"
    else:
        assert (result.failure.reason, result.failure.message) == (
            "start",
            "The process could not be started: it was killed before it began.",
        )
    keeper.close()
