"""Interpreters that are parked: how they come to be, what they are given, and when a job can't have one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest
from support.runtime import WatchedProcess, rank_argv, start_task

from gpulayer.runtime.process import Keeper

PASS = ["python", "-c", "pass"]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def parked_below(task_keeper: int) -> int:
    """The interpreter that a task keeper has parked, or is about to park: it answers the end of a task first."""
    deadline = time.monotonic() + 10
    while not (found := children(task_keeper)):
        assert time.monotonic() < deadline
        os.sched_yield()
    (parked,) = found
    return parked


@pytest.fixture
def own_keeper():
    keeper = Keeper.start()
    yield keeper
    keeper.close()


def run(keeper, folder, argv=PASS, files=None, **options):
    task = start_task(keeper, folder, files or {}, argv=argv, **options)
    assert task.result().state == "succeeded", task.events.output
    return task


def test_one_task_keeper_serves_one_task_after_the_other(own_keeper, tmp_path):
    source = "import os; print(os.getppid(), os.getpid())"
    seen = [run(own_keeper, tmp_path, ["python", "-c", source]).events.text().split() for _ in range(5)]
    assert len({parent for parent, _ in seen}) == 1
    assert len({pid for _, pid in seen}) == 5
    assert [int(parent) for parent, _ in seen[:1]] == children(own_keeper.pid)


def test_a_task_keeper_whose_task_left_something_serves_no_other(own_keeper, tmp_path):
    source = "import os, subprocess; print(os.getppid()); subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    parents = [run(own_keeper, tmp_path, ["python", "-c", source]).events.text() for _ in range(2)]
    assert parents[0] != parents[1]
    assert WatchedProcess(int(parents[0])).has_ended(10)


def test_spares_are_as_many_as_asked_for(tmp_path):
    keeper = Keeper.start(spares=3)
    source = {"main.py": "import signal; print('ready', flush=True); signal.pause()"}
    tasks = [start_task(keeper, tmp_path / str(number), source, argv=["python", "main.py"]) for number in range(5)]
    for task in tasks:
        task.events.wait_for("ready")
    assert len(children(keeper.pid)) == 5
    for task in tasks:
        task.process.stop("cancel")
        task.result()
    with keeper._pool._changed:
        assert keeper._pool._changed.wait_for(lambda: len(keeper._pool._task_keepers) == len(keeper._pool._idle) == 3, 10)
    keeper.close()


def test_a_parked_interpreter_that_died_is_replaced(own_keeper, tmp_path):
    run(own_keeper, tmp_path)
    (task_keeper,) = children(own_keeper.pid)
    parked = parked_below(task_keeper)
    watched = WatchedProcess(parked)
    os.kill(parked, signal.SIGKILL)
    assert watched.has_ended(10)
    task = run(own_keeper, tmp_path)
    assert task.result().ranks[0].cold_reason is None
    assert children(own_keeper.pid) == [task_keeper]


def test_a_spare_task_keeper_that_died_is_not_given_out(own_keeper, tmp_path):
    run(own_keeper, tmp_path)
    (task_keeper,) = children(own_keeper.pid)
    os.kill(task_keeper, signal.SIGKILL)
    with own_keeper._pool._changed:
        assert own_keeper._pool._changed.wait_for(lambda: not own_keeper._pool._task_keepers, 10)
    assert run(own_keeper, tmp_path).result().ranks[0].cold_reason is None


@pytest.mark.parametrize("victim", ["keeper", "task keeper"])
def test_nothing_parked_outlives_its_keepers(own_keeper, tmp_path, victim):
    run(own_keeper, tmp_path)
    (task_keeper,) = children(own_keeper.pid)
    parked = parked_below(task_keeper)
    watched = [WatchedProcess(pid) for pid in (task_keeper, parked)]
    os.kill(own_keeper.pid if victim == "keeper" else task_keeper, signal.SIGKILL)
    assert all(process.has_ended(2) for process in watched)


def test_the_keeper_ends_with_the_agent_though_a_forked_process_holds_its_files(tmp_path):
    agent = """
        import ctypes, os, signal
        from gpulayer.runtime.process import Keeper
        keeper = Keeper.start()
        # Past Python, which would have the keeper's connections closed in the child.
        child = ctypes.CDLL(None).fork()
        if child == 0:
            signal.pause()
        print(keeper.pid, child, flush=True)
        signal.pause()
        """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(agent)], stdout=subprocess.PIPE, text=True) as process:
        keeper, child = map(int, process.stdout.readline().split())
        watched, forked = WatchedProcess(keeper), WatchedProcess(child)
        process.kill()
        assert watched.has_ended(2)
        assert not forked.has_ended()
        os.kill(child, signal.SIGKILL)


def test_a_process_that_the_agent_forks_holds_no_end_of_the_keepers_connections(own_keeper, tmp_path):
    run(own_keeper, tmp_path)
    connections = [own_keeper._connection, *(task_keeper.connection for task_keeper in own_keeper._pool._task_keepers)]
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, b"%d" % sum(connection.fileno() >= 0 for connection in connections))
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reader, 10) == b"0"
    assert run(own_keeper, tmp_path).result().ranks[0].cold_reason is None
    for file in (reader, writer):
        os.close(file)


# ---- when it goes cold


@pytest.mark.parametrize(
    ("argv", "options", "reason"),
    [
        (["python", "-O", "-c", "pass"], {}, "the command has interpreter options, or no program"),
        (["python", "-cpass"], {}, "the command has interpreter options, or no program"),
        (PASS, {"env": {"PYTHONHASHSEED": "1"}}, "its environment has another PYTHONHASHSEED"),
        (PASS, {"env": {"LC_ALL": "C", "TZ": "UTC"}}, "its environment has another LC_ALL, TZ"),
        (["sh", "-c", "true"], {}, None),
    ],
)
def test_what_starts_as_a_new_program_says_why(keeper, tmp_path, argv, options, reason):
    assert run(keeper, tmp_path, argv, **options).result().ranks[0].cold_reason == reason


@pytest.mark.parametrize(("argv", "name"), [(["python", "main.py"], "struct"), (["python", "-m", "main"], "json"), (rank_argv(), "fcntl")])
def test_a_module_of_the_job_with_the_name_of_a_loaded_one_is_found(keeper, tmp_path, argv, name):
    task = run(keeper, tmp_path, argv, {"main.py": f"import {name}; print({name}.__file__)", f"{name}.py": ""})
    assert task.result().ranks[0].cold_reason == f"the job's {name} has the name of a module that is loaded already"
    assert task.events.text() == f"{tmp_path}/source/{name}.py\n"


def test_a_module_named_like_one_of_the_keepers_is_found(keeper, tmp_path):
    source = {"main.py": "import gpulayer, frames; print(gpulayer.__file__, frames.__file__)", "gpulayer.py": "", "frames.py": ""}
    task = run(keeper, tmp_path, ["python", "main.py"], source)
    assert task.result().ranks[0].cold_reason is None
    assert task.events.text() == f"{tmp_path}/source/gpulayer.py {tmp_path}/source/frames.py\n"


def test_what_is_installed_after_the_start_is_found(packages, own_keeper, tmp_path):
    source = {"main.py": "import fresh; print(fresh.VALUE)"}
    failed = start_task(own_keeper, tmp_path / "a", source, argv=["python", "main.py"])
    assert failed.result().state == "failed"
    for value in (1, 22):
        (packages / "fresh.py").write_text(f"VALUE = {value}")
        task = run(own_keeper, tmp_path / "b", ["python", "main.py"], source)
        assert (task.events.text(), task.result().ranks[0].cold_reason) == (f"{value}\n", None)
    (packages / "new.pth").write_text("")
    task = run(own_keeper, tmp_path / "b", ["python", "main.py"], source)
    assert task.result().ranks[0].cold_reason == "the .pth files of the environment have changed"


def test_a_broken_link_among_the_packages_does_not_keep_a_job_from_starting(packages, own_keeper, tmp_path):
    (packages / "gone.pth").symlink_to("nowhere.pth")
    task = run(own_keeper, tmp_path)
    assert task.result().state == "succeeded"


def test_packages_that_vanish_do_not_keep_a_job_from_starting(packages, own_keeper, tmp_path):
    packages.rmdir()
    packages.symlink_to(packages)
    assert run(own_keeper, tmp_path).result().state == "succeeded"


def test_a_module_in_a_folder_that_is_run_is_found(keeper, tmp_path):
    source = {"app/__main__.py": "import struct; print(struct.__file__)", "app/struct.py": ""}
    (tmp_path / "source" / "app").mkdir(parents=True)
    task = run(keeper, tmp_path, ["python", "app"], source)
    assert task.events.text() == f"{tmp_path}/source/app/struct.py\n"
    assert task.result().ranks[0].start == "cold"


def test_an_archive_starts_as_a_new_program(keeper, tmp_path):
    (tmp_path / "source").mkdir()
    with zipfile.ZipFile(tmp_path / "source" / "app.zip", "w") as archive:
        archive.writestr("__main__.py", "import struct; print(struct.__file__)")
        archive.writestr("struct.py", "")
    task = run(keeper, tmp_path, ["python", "app.zip"])
    assert task.events.text() == f"{tmp_path}/source/app.zip/struct.py\n"
    assert task.result().ranks[0].start == "cold"


def test_a_job_does_not_find_what_is_kept_from_it_in_its_process(monkeypatch, tmp_path):
    monkeypatch.setenv("GPULAYER_TOKEN", "canary-of-the-agent")
    keeper = Keeper.start()
    try:
        task = run(keeper, tmp_path, ["python", "-c", "print(b'canary' in open('/proc/self/environ', 'rb').read())"])
        assert (task.result().ranks[0].start, task.events.text()) == ("warm", "False\n")
    finally:
        keeper.close()


# ---- preloaded modules


def test_a_gpu_that_a_module_opened_is_seen(packages, tmp_path):
    (packages / "opens_gpu.py").write_text(f"file = open({str(tmp_path / 'device')!r}, 'w')")
    program = f"from gpulayer.runtime import parked_template as here; here._GPU_FILES = ({str(tmp_path)!r},); here.preload(['opens_gpu'])"
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(f"PreloadRefused: opens_gpu: it opened {tmp_path}/device")
