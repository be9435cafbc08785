"""Ranks that begin in a zygote: that they can't tell, but by the time, and when they start otherwise."""

from __future__ import annotations

import errno
import json
import os
import signal

import pytest
from support.runtime import WatchedProcess, rank_argv, start_task

from gpulayer.runtime import task_keeper_link
from gpulayer.runtime.process import Keeper
from gpulayer.runtime.process_tree import find_descendants, parent_of
from gpulayer.runtime.zygote import Zygote


@pytest.fixture
def start(keeper, zygote, tmp_path):
    def start(source, *, files=None, devices=2, launcher="warm", folder="", **options):
        files = {"main.py": source, **(files or {})}
        return start_task(keeper, tmp_path / folder, files, script="main.py", devices=devices, launcher=launcher, zygote=zygote, **options)

    return start


SETTINGS = """
    import atexit, json, logging, os, random, sys
    import numpy, torch, threadpoolctl
    os.write(1, json.dumps({
        "threads": torch.get_num_threads(),
        "pools": sorted((pool["internal_api"], pool["num_threads"]) for pool in threadpoolctl.threadpool_info()),
        "interop": torch.get_num_interop_threads(),
        "debug": str(torch.distributed.get_debug_level()),
        "default": str(torch.get_default_dtype()),
        "grad": torch.is_grad_enabled(),
        "level": logging.getLogger("torch").level,
        "flags": str(sys.flags),
        "argv": sys.argv,
        "path": [path for path in sys.path if "site-packages" not in path],
        "streams": [sys.stdout.line_buffering, sys.stdout.write_through, sys.stdout.encoding],
        "handlers": bool(atexit._ncallbacks()),
        "torch": torch.__spec__.loader.__class__.__name__ + torch.__loader__.__class__.__name__,
    }).encode())
    """


@pytest.mark.parametrize("threads", [None, "1", str(len(os.sched_getaffinity(0)))])
def test_torch_is_as_in_a_rank_that_imports_it(start, threads, torch_threads):
    env = {} if threads is None else {"OMP_NUM_THREADS": threads}
    warm = start(SETTINGS, folder="job", devices=1, env=env)
    assert warm.result().ranks[0].launcher == "warm", warm.result()
    direct = start(SETTINGS, folder="job", devices=1, env=env, launcher="direct")
    assert direct.result().state == "succeeded", direct.events.output
    assert json.loads(warm.events.text()) == json.loads(direct.events.text())
    assert json.loads(warm.events.text())["threads"] == int(threads or torch_threads)


def test_ranks_draw_numbers_of_their_own(start):
    task = start("import numpy, random, torch; print(random.random(), numpy.random.rand(), torch.rand(1).item())")
    assert task.result().state == "succeeded"
    drawn = [*task.events.text(0).split(), *task.events.text(1).split()]
    assert len(set(drawn)) == 6


def test_what_one_job_serves_lets_no_other_in(start):
    task = start("import multiprocessing; print(multiprocessing.current_process().authkey.hex())")
    assert task.result().state == "succeeded"
    assert task.events.text(0) != task.events.text(1)


def test_ddp_and_a_loader_with_workers_work_and_import_next_to_nothing(start):
    source = """
        import sys, torch, torch.distributed as dist
        from torch.utils.data import DataLoader
        dist.init_process_group("gloo")
        known = set(sys.modules)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for batch in DataLoader(torch.ones(8, 2), batch_size=2, num_workers=2):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
        print(len(set(sys.modules) - known) < 40, model.module.weight.grad.tolist())
        dist.destroy_process_group()
        """
    task = start(source)
    result = task.result()
    assert result.state == "succeeded", task.events.output
    assert [rank.launcher for rank in result.ranks] == ["warm", "warm"]
    assert {task.events.text(rank) for rank in range(2)} == {"True [[2.0, 2.0]]\n"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"env": {"TORCH_LOGS": "recompiles"}}, "its environment has another TORCH_LOGS, which torch reads as it is imported"),
        ({"env": {"MKL_NUM_THREADS": "2"}}, "its environment has another MKL_NUM_THREADS, which torch reads as it is imported"),
        ({"env": {"OMP_NUM_THREADS": "2,1"}}, "its OMP_NUM_THREADS is '2,1' and no number"),
        (
            {"env": {"OMP_NUM_THREADS": "4096"}},
            "its OMP_NUM_THREADS is 4096, and what libraries make of more than there are cores is theirs to say",
        ),
        ({"env": {"PYTHONHASHSEED": "1"}}, "its environment has another PYTHONHASHSEED"),
        ({"files": {"sympy.py": "raise ImportError"}}, "the job's sympy has the name of a module that is loaded already"),
    ],
)
def test_what_can_not_start_warm_starts_direct_and_says_why(start, options, reason):
    task = start("import os; print(os.environ['RANK'])", **options)
    result = task.result()
    assert result.state == "succeeded", task.events.output
    assert [(rank.launcher, rank.cold_reason) for rank in result.ranks] == [("direct", reason)] * 2
    assert [task.events.text(rank) for rank in range(2)] == ["0\n", "1\n"]


def test_a_process_that_rank_0_forks_does_not_serve_the_store(start):
    source = """
        import os, signal
        reader, writer = os.pipe()
        if os.fork() == 0:
            import torch.distributed
            os.write(writer, b"x")
            signal.pause()
        os.read(reader, 1)
        os.environ["MASTER_PORT"] = "1"  # the store is where it was to be, whatever the script does
        import torch.distributed as dist
        from gpulayer.runtime import rank_torch
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{rank_torch._store.port}", rank=0, world_size=1)
        print("met")
        """
    task = start(source, devices=1, launcher="direct", timeout_seconds=60)
    assert task.result().state == "succeeded", task.events.output
    assert task.events.text() == "met\n"


def test_what_groups_read_when_they_are_made_may_differ(start):
    task = start("import os; print(os.environ['TORCH_NCCL_BLOCKING_WAIT'])", devices=1, env={"TORCH_NCCL_BLOCKING_WAIT": "1"})
    assert task.result().ranks[0].launcher == "warm"


def test_a_command_that_is_a_rank_of_its_own_starts_warm_too(keeper, zygote, tmp_path, torch_threads):
    source = "import os, sys; print('torch' in sys.modules, 'RANK' in os.environ); import torch; print(torch.get_num_threads())"
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv(), zygote=zygote)
    result = task.result()
    assert (result.state, result.ranks[0].start, result.ranks[0].launcher) == ("succeeded", "warm", "warm"), task.events.output
    assert task.events.text() == f"True False\n{torch_threads}\n"


HOLDS = """
    import os, signal
    print(os.getpid(), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.pause()
    """


@pytest.fixture
def own_keeper():
    keeper = Keeper.start()
    yield keeper
    keeper.close()


@pytest.fixture
def own_zygote(own_keeper):
    zygote = Zygote(own_keeper, ("json",), parked=2)
    assert zygote.wait_ready(lambda: False) is None
    yield zygote
    zygote.close()


def test_ranks_outlive_their_zygote_and_the_next_start_direct(own_keeper, own_zygote, tmp_path):
    options = {"script": "main.py", "devices": 2, "launcher": "warm", "zygote": own_zygote}
    first = start_task(own_keeper, tmp_path / "a", {"main.py": HOLDS}, **options)
    ranks = []
    for rank in range(2):
        first.events.wait_for("\n", rank)
        ranks.append(WatchedProcess(int(first.events.text(rank))))
    died = WatchedProcess(own_zygote.pid)
    os.kill(own_zygote.pid, signal.SIGKILL)
    assert died.has_ended(10)
    second = start_task(own_keeper, tmp_path / "b", {"main.py": "print('up')"}, **options)
    outcomes = [(rank.launcher, rank.cold_reason) for rank in second.result().ranks]
    assert outcomes == [("direct", "its zygote has died")] * 2
    assert not any(rank.has_ended() for rank in ranks)
    first.process.stop("cancel")
    assert [(rank.launcher, rank.exit_code) for rank in first.result().ranks] == [("warm", 0)] * 2
    assert own_zygote.wait_ready(lambda: False) in ("its zygote has died", None)
    assert own_zygote.wait_ready(lambda: False) is None
    third = start_task(own_keeper, tmp_path / "c", {"main.py": "print('up')"}, **options)
    assert [rank.launcher for rank in third.result().ranks] == ["warm", "warm"]
    for process in (died, *ranks):
        process.close()


def begin(keeper, zygote, folder, source=HOLDS):
    """Two ranks that print numbers of processes; the task, and what is watched by these numbers."""
    task = start_task(keeper, folder, {"main.py": source}, script="main.py", devices=2, launcher="warm", zygote=zygote)
    watched = []
    for rank in range(2):
        task.events.wait_for("\n", rank)
        watched += [WatchedProcess(int(word)) for word in task.events.text(rank).split()]
    return task, watched


def test_what_a_dead_task_keeper_of_a_dead_zygote_leaves_is_ended(own_keeper, own_zygote, tmp_path):
    source = """
        import os, signal, subprocess
        print(os.getpid(), subprocess.Popen(["sleep", "1000"], start_new_session=True).pid, flush=True)
        signal.pause()
        """
    task, watched = begin(own_keeper, own_zygote, tmp_path, source)
    task_keeper = parent_of(watched[0].pid)
    os.kill(own_zygote.pid, signal.SIGSTOP)  # it looks after nothing any more
    os.kill(task_keeper, signal.SIGKILL)
    os.kill(own_zygote.pid, signal.SIGKILL)
    assert task.result().failure.reason == "lost"
    assert all(process.has_ended(10) for process in watched)
    for process in watched:
        process.close()


def test_another_task_keepers_death_is_not_the_zygotes_ranks(own_keeper, own_zygote, tmp_path):
    task, watched = begin(own_keeper, own_zygote, tmp_path)
    keeper_pid = own_keeper.pid
    others = [pid for pid in find_descendants(keeper_pid) if parent_of(pid) == keeper_pid and pid != own_zygote.pid]
    ends = [WatchedProcess(pid) for pid in (others[0], own_zygote.pid)]
    os.kill(keeper_pid, signal.SIGSTOP)  # both ends are collected at once
    for end in ends:
        os.kill(end.pid, signal.SIGKILL)
        assert end.has_ended(10)
    os.kill(keeper_pid, signal.SIGCONT)
    following = start_task(own_keeper, tmp_path / "next", {"main.py": "print('up')"}, argv=rank_argv())
    assert following.result().state == "succeeded"
    assert not any(process.has_ended() for process in watched)
    task.process.stop("cancel")
    assert [rank.exit_code for rank in task.result().ranks] == [0, 0]
    for process in (*watched, *ends):
        process.close()


@pytest.mark.parametrize("with_zygote", [True, False])
def test_ranks_of_a_zygote_end_with_the_keeper(own_keeper, own_zygote, tmp_path, with_zygote):
    task, watched = begin(own_keeper, own_zygote, tmp_path)
    if not with_zygote:
        watched.append(WatchedProcess(own_zygote.pid))
        os.kill(own_zygote.pid, signal.SIGKILL)
        assert watched[-1].has_ended(10)
    os.kill(own_keeper.pid, signal.SIGKILL)
    assert all(process.has_ended(10) for process in watched)
    result = task.result()
    assert (result.state, result.failure.reason) == ("failed", "lost")
    for process in watched:
        process.close()


@pytest.mark.parametrize(
    ("dies", "reason"), [(True, "its zygote has died"), (False, f"its zygote forks no process: {os.strerror(errno.ETIMEDOUT)}")]
)
def test_ranks_that_wait_for_a_zygote_that_forks_no_more_start_direct(own_keeper, own_zygote, tmp_path, monkeypatch, dies, reason):
    options = {"script": "main.py", "launcher": "warm", "zygote": own_zygote}
    first = start_task(own_keeper, tmp_path / "a", {"main.py": HOLDS}, **options)  # has what was ready
    first.events.wait_for("\n")
    opened = own_zygote._pool.open_task

    def open_task(*callbacks):
        processes = opened(*callbacks)
        if dies:
            os.kill(own_zygote.pid, signal.SIGKILL)
        return processes

    monkeypatch.setattr(own_zygote._pool, "open_task", open_task)
    monkeypatch.setattr(task_keeper_link, "_PARK_SECONDS", 60.0 if dies else 0.1)
    os.kill(own_zygote.pid, signal.SIGSTOP)
    second = start_task(own_keeper, tmp_path / "b", {"main.py": "print('up')"}, **options)
    result = second.result()
    assert (result.state, [(rank.launcher, rank.cold_reason) for rank in result.ranks]) == ("succeeded", [("direct", reason)])
    first.process.stop("cancel")
    assert first.result().ranks[0].launcher == "warm"
