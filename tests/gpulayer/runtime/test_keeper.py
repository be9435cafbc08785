"""The keeper's promise: whoever dies, nothing that a job started is left, and nobody else is touched."""

from __future__ import annotations

import errno
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from support.runtime import WatchedProcess, rank_argv, start_task

from gpulayer.errors import Interrupted
from gpulayer.runtime.frames import FrameSocket
from gpulayer.runtime.process import Keeper
from gpulayer.runtime.process_tree import parent_of
from gpulayer.runtime.task_processes import ProcessExit, StartFailed

WITHIN_SECONDS = 2.0

# A job as hard to find as can be: a child, a child in a session of its own, and a daemon forked twice.
FAMILY = """
    import os, signal, subprocess, sys
    print(os.environ["GPULAYER_CHANNEL"], file=sys.stderr, flush=True)
    reader, writer = os.pipe()
    def note():
        os.write(writer, b"%d " % os.getpid())
    note()
    if os.fork() == 0:
        note()
        signal.pause()
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note()
        signal.pause()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            note()
            signal.pause()
        os._exit(0)
    os.wait()
    found = b""
    while found.count(b" ") < 4:
        found += os.read(reader, 100)
    print(found.decode(), flush=True)
    signal.pause()
    """


def watch_family(text: str) -> list[WatchedProcess]:
    family = [WatchedProcess(int(pid)) for pid in text.split()]
    assert len(family) == 4
    assert not any(member.has_ended() for member in family)
    return family


def assert_all_end(family: list[WatchedProcess]) -> None:
    assert [member.has_ended(WITHIN_SECONDS) for member in family] == [True] * 4
    for member in family:
        member.close()


def test_killing_the_agent_ends_everything(tmp_path):
    agent = f"""
        import sys, signal
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from pathlib import Path
        from support.runtime import rank_argv, start_task
        from gpulayer.runtime.process import Keeper
        keeper = Keeper.start()
        task = start_task(keeper, Path({str(tmp_path / "work")!r}), {{"main.py": {FAMILY!r}}}, argv=rank_argv())
        task.events.wait_for("\\n")
        print(task.events.text(), keeper.pid, task.events.text(stream="stderr"), flush=True)
        signal.pause()
        """
    stranger = subprocess.Popen(["sleep", "1000"])
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(agent)], stdout=subprocess.PIPE, text=True) as process:
        words = (process.stdout.readline() + process.stdout.readline()).split()
        channel = Path(words[5])
        assert channel.exists()
        family = watch_family(" ".join(words[:4]))
        keeper = WatchedProcess(int(words[4]))
        process.kill()
        assert_all_end(family)
        assert keeper.has_ended(WITHIN_SECONDS)
        keeper.close()
        assert not channel.parent.exists()
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


@pytest.mark.parametrize("victim", ["keeper", "task keeper"])
def test_killing_a_keeper_ends_the_job_and_the_next_one_runs(tmp_path, victim):
    keeper = Keeper.start()
    task = start_task(keeper, tmp_path / "a", {"main.py": FAMILY}, argv=rank_argv())
    task.events.wait_for("\n")
    family = watch_family(task.events.text())
    os.kill(keeper.pid if victim == "keeper" else parent_of(family[0].pid), signal.SIGKILL)
    assert_all_end(family)
    result = task.result(10)
    assert result.state == "failed"
    assert result.failure.reason in ("lost", "rank")
    after = start_task(keeper, tmp_path / "b", {"main.py": "print('again')"}, argv=rank_argv())
    assert after.result().state == "succeeded"
    keeper.close()


def test_closing_a_keeper_ends_the_job(tmp_path):
    keeper = Keeper.start()
    task = start_task(keeper, tmp_path, {"main.py": FAMILY}, argv=rank_argv())
    task.events.wait_for("\n")
    family = watch_family(task.events.text())
    keeper.close()
    assert_all_end(family)
    assert task.result(10).state == "failed"
    with pytest.raises(Interrupted):
        keeper.open_task(lambda _: None, lambda: None)


def test_the_end_of_one_task_leaves_another_alone(keeper, tmp_path):
    tasks = [start_task(keeper, tmp_path / name, {"main.py": FAMILY}, argv=rank_argv()) for name in "ab"]
    families = []
    for task in tasks:
        task.events.wait_for("\n")
        families.append(watch_family(task.events.text()))
    tasks[0].process.stop("kill")
    tasks[0].result(10)
    assert_all_end(families[0])
    assert not any(member.has_ended() for member in families[1])
    tasks[1].process.stop("kill")
    tasks[1].result(10)
    assert_all_end(families[1])


def test_a_process_gets_what_it_was_given_and_nothing_else(keeper, tmp_path):
    ended: queue.SimpleQueue[ProcessExit] = queue.SimpleQueue()
    task = keeper.open_task(ended.put, lambda: None)
    reader, writer = os.pipe()
    script = (
        "import os, resource, signal; print(os.getcwd(), dict(os.environ).get('A'), os.getsid(0) == os.getpid(),"
        " sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:4], os.umask(0),"
        " resource.getrlimit(resource.RLIMIT_CORE), signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL)"
    )
    pid = task.start_process(
        [sys.executable, "-c", script],
        cwd=str(tmp_path),
        env={"A": "1"},
        stdout=writer,
        stderr=writer,
        umask=0o027,
        limits={"RLIMIT_CORE": (0, 0)},
    )
    os.close(writer)
    with os.fdopen(reader) as output:
        # 3 is the folder that it lists.
        assert output.read() == f"{tmp_path} 1 True [0, 1, 2, 3] 23 (0, 0) True\n"
    found = ended.get(timeout=10)
    assert (found.pid, found.exit_code, found.signal) == (pid, 0, None)
    assert found.peak_bytes > 1_000_000
    assert task.end()
    task.close()


@pytest.mark.parametrize(
    ("cwd", "argv", "named"), [("/no/such/folder", ["true"], "working directory"), ("/", ["/etc/passwd"], "/etc/passwd: Permission")]
)
def test_what_cannot_start_says_why(keeper, cwd, argv, named):
    task = keeper.open_task(lambda _: None, lambda: None)
    with pytest.raises(StartFailed, match=named):
        task.start_process(argv, cwd=cwd, env={"PATH": os.environ["PATH"]}, stdout=1, stderr=2)
    task.close()


def test_a_signal_reaches_descendants_only(keeper):
    ended: queue.SimpleQueue[ProcessExit] = queue.SimpleQueue()
    task = keeper.open_task(ended.put, lambda: None)
    pid = task.start_process(["sleep", "1000"], cwd="/", env={"PATH": os.environ["PATH"]}, stdout=1, stderr=2)
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        task.signal(stranger.pid, signal.SIGKILL)
        task.signal(pid, signal.SIGKILL)
        assert ended.get(timeout=10).signal == signal.SIGKILL
        assert stranger.poll() is None
        stranger.kill()
    task.close()


# A keeper whose fork fails when it is to make its second task keeper, as at the limit of processes.
AT_THE_LIMIT = """#!{python} -P
import errno, itertools, os, sys
from gpulayer.runtime import keeper
fork, me, calls = os.fork, os.getpid(), itertools.count(1)
def fork_or_not():
    if os.getpid() == me and next(calls) == 2:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()
os.fork = fork_or_not
sys.argv = [sys.argv[0], *sys.argv[-3:]]
keeper.main()
"""


def test_a_keeper_that_cannot_fork_loses_that_task_alone(tmp_path):
    program = tmp_path / "python"
    program.write_text(AT_THE_LIMIT.format(python=sys.executable))
    program.chmod(0o755)
    keeper = Keeper.start(str(program))
    pid = keeper.pid
    first = start_task(keeper, tmp_path / "a", {"main.py": FAMILY}, argv=rank_argv())
    first.events.wait_for("\n")
    second = start_task(keeper, tmp_path / "b", {"main.py": ""}, argv=rank_argv()).result(10)
    assert (second.state, second.failure.reason) == ("failed", "lost")
    assert start_task(keeper, tmp_path / "c", {"main.py": "print('again')"}, argv=rank_argv()).result().state == "succeeded"
    assert keeper.pid == pid
    assert not _is_blocked(pid, signal.SIGTERM)
    family = watch_family(first.events.text())
    keeper.close()
    assert_all_end(family)
    first.result(10)


def test_a_request_whose_socket_was_dropped_on_the_way_harms_no_task(tmp_path):
    keeper = Keeper.start()
    pid = keeper.pid
    assert keeper._connection is not None
    keeper._connection.send({"op": "open_task", "parks": 1})
    assert start_task(keeper, tmp_path, {"main.py": ""}, argv=rank_argv()).result().state == "succeeded"
    assert keeper.pid == pid
    keeper.close()


def _is_blocked(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigBlk"))
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_a_job_process_that_cannot_be_had_is_a_start_that_failed(keeper, monkeypatch):
    task = keeper.open_task(lambda _: None, lambda: None)
    options = {"cwd": "/", "env": {"PATH": os.environ["PATH"]}, "stdout": 1, "stderr": 2}
    with monkeypatch.context() as patched:
        send = FrameSocket.send
        patched.setattr(FrameSocket, "send", lambda self, message, files=(): send(self, message))  # the files are dropped on the way
        with pytest.raises(StartFailed, match=os.strerror(errno.EMFILE)):
            task.start_process(["true"], **options)
    assert task.start_process(["true"], **options) > 0
    task.close()


def test_a_fault_in_handling_one_tasks_end_costs_that_task_alone(keeper):
    lost, ended = threading.Event(), threading.Event()

    def fail(_):
        raise RuntimeError("a fault of ours")

    faulty = keeper.open_task(fail, lost.set)
    sound = keeper.open_task(lambda _: ended.set(), lambda: None)
    for task in (faulty, sound):
        task.start_process(["true"], cwd="/", env={"PATH": os.environ["PATH"]}, stdout=1, stderr=2)
    assert lost.wait(10)
    assert ended.wait(10)
    sound.close()


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize("victim", ["keeper", "task keeper"])
def test_a_keeper_that_is_killed_is_what_the_failure_names(tmp_path, victim, distributed):
    keeper = Keeper.start()
    how = {"script": "main.py"} if distributed else {"argv": rank_argv()}
    source = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    try:
        task = start_task(keeper, tmp_path, {"main.py": source}, **how)
        task.events.wait_for("\n")
        pid = keeper.pid
        if victim == "task keeper":
            pid = int(task.events.text())
            while parent_of(pid) != keeper.pid:
                pid = parent_of(pid)
        os.kill(pid, signal.SIGKILL)
        result = task.result()
    finally:
        keeper.close()
    assert (result.state, result.failure.reason) == ("failed", "lost")
    assert "keeper" in result.failure.message
    assert len(task.events.failures) == 1


DISMISSES_AND_DIES = """
    import os, signal, sys
    from gpulayer.runtime.process import Keeper
    keeper = Keeper.start()
    task = keeper.open_task(lambda ended: None, lambda: None)
    task.start_process(["/bin/true"], cwd="/", env={}, stdout=2, stderr=2)  # so that the keeper runs
    print(keeper.pid, keeper._folder, flush=True)
    sys.stdin.readline()
    keeper._connection.send({"op": "close"})
    os.kill(os.getpid(), signal.SIGKILL)
    """


def test_the_folder_of_an_agent_that_is_killed_at_its_end_goes_too():
    agent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DISMISSES_AND_DIES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with agent:
        assert agent.stdout is not None
        pid, folder = agent.stdout.readline().split()
        keeper = WatchedProcess(int(pid))
        assert Path(folder).exists()
        os.kill(keeper.pid, signal.SIGSTOP)  # it finds the word and the end at once
        agent.communicate("\n")
    os.kill(keeper.pid, signal.SIGCONT)
    assert keeper.has_ended(10)
    keeper.close()
    assert not Path(folder).exists()
