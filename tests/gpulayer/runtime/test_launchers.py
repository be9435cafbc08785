"""What every launcher promises a job's ranks, and the agent about them: one suite for all three.

What only one of them does is in `test_torchrun.py`, `test_direct.py` and `test_warm_ranks.py`.
"""

from __future__ import annotations

import json
import os
import signal

import pytest
from support.runtime import Meeting, WatchedProcess, start_task

GRACE = 1.0
LONG = 1000.0  # a grace that no test waits for


@pytest.fixture(params=["torchrun", "direct", "warm"])
def launch(request, keeper, tmp_path):
    """Starts two ranks of a script on one node, or as the options say, and checks at the end who started them."""
    launcher = request.param
    zygote = request.getfixturevalue("zygote") if launcher == "warm" else None
    tasks = []

    def start(source, *, folder="", **options):
        options.setdefault("devices", 2)
        task = start_task(keeper, tmp_path / folder, {"main.py": source}, script="main.py", launcher=launcher, zygote=zygote, **options)
        tasks.append(task)
        return task

    start.launcher = launcher
    yield start
    for task in tasks:
        for rank in task.result().ranks:
            assert (rank.launcher, rank.cold_reason) == (launcher, None), rank


def left_by(task):
    """What the job left, by name."""
    return sorted(path.name for path in (task.workspace / "output").iterdir())


def test_ranks_find_what_torchrun_tells_them(launch):
    source = """
        import json, os, sys
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_NAME",
                 "ROLE_WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID",
                 "TORCHELASTIC_USE_AGENT_STORE", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "OMP_NUM_THREADS", "GPULAYER_JOB_ID", "MINE")
        print(json.dumps({name: os.environ[name] for name in names}))
        print(int(os.environ["MASTER_PORT"]) > 0, os.getcwd().endswith("/source"), __name__, __file__ == sys.path[0] + "/main.py")
        print(sys.argv, sys.stdin.read() == "", os.getsid(0) == os.getpid(), "GPULAYER_LISTENER" in os.environ)
        """
    task = launch(source, args=("--flag", "${local_rank}"), env={"MINE": "1"})
    assert task.result().state == "succeeded", task.events.output
    for rank in range(2):
        first, *rest = task.events.text(rank).splitlines()
        assert json.loads(first) == {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1",
            "ROLE_RANK": str(rank),
            "ROLE_NAME": "default",
            "ROLE_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": "job.1",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            "OMP_NUM_THREADS": "1",
            "GPULAYER_JOB_ID": "job",
            "MINE": "1",
        }
        assert rest == ["True True __main__ True", f"['main.py', '--flag', '{rank}'] True True False"]


def test_streams_are_told_apart_kept_in_order_and_as_they_are_written(launch):
    source = """
        import os, sys
        rank = os.environ["RANK"]
        for number in range(500):
            print(rank, number)
            if number % 100 == 0:
                os.write(2, b"native %d\\n" % number)
                os.system(f"echo child {number}")
        os.write(1, "é漢🙂\\r".encode() + b"\\xff")
        sys.stdout.close()
        os.close(1)
        print("goes on", file=sys.stderr)
        """
    task = launch(source)
    assert task.result().state == "succeeded", task.events.output
    for rank in range(2):
        lines = []
        for number in range(500):
            lines.append(f"{rank} {number}")
            if number % 100 == 0:
                lines.append(f"child {number}")
        expected = "".join(f"{line}\n" for line in lines).encode() + "é漢🙂\r".encode() + b"\xff"
        assert bytes(task.events.output[rank, "stdout"]) == expected
        assert task.events.text(rank, "stderr") == "".join(f"native {n}\n" for n in range(0, 500, 100)) + "goes on\n"


WAITS = "signal.pause()"
ENDS = [
    ("sys.exit(3)", 3, None, "Rank 1 exited with code 3"),
    ("sys.exit('no data')", 1, None, "Rank 1 exited with code 1"),
    ("os._exit(7)", 7, None, "Rank 1 exited with code 7"),
    ("os.abort()", None, signal.SIGABRT, "Rank 1 was ended by SIGABRT"),
    ("faulthandler._sigsegv()", None, signal.SIGSEGV, "Rank 1 was ended by SIGSEGV (a fault in native code"),
    ("os.kill(os.getpid(), 9)", None, signal.SIGKILL, "somebody sent the signal"),
    ("raise ValueError('boom')", 1, None, "Rank 1 raised ValueError: boom"),
]


@pytest.mark.parametrize(("end", "exit_code", "number", "message"), ENDS, ids=[end[0] for end in ENDS])
def test_the_rank_that_failed_is_named_and_the_other_stopped(launch, end, exit_code, number, message):
    source = f"""
        import faulthandler, os, signal, sys
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("up", flush=True)
        def work():
            while True:
                {WAITS}
        if os.environ["RANK"] == "0":
            work()
        while not os.path.exists("../output/go"):
            os.sched_yield()
        {end}
        """
    task = launch(source, grace_seconds=LONG)
    for rank in range(2):
        task.events.wait_for("up", rank)
    (task.workspace / "output" / "go").touch()
    result = task.result()
    assert result.state == "failed"
    assert (result.failure.rank, result.failure.exit_code, result.failure.signal) == (1, exit_code, number)
    assert message in result.failure.message
    assert [failure.rank for failure in task.events.failures] == [1]
    stopped, guilty = result.ranks
    assert (stopped.signal, stopped.collateral, guilty.collateral) == (signal.SIGKILL, True, False)
    assert (guilty.exit_code, guilty.signal) == (exit_code, number)
    assert stopped.stacks[0].is_main
    assert [frame.function for frame in stopped.stacks[0].frames] == ["<module>", "work"]
    assert stopped.stacks[0].frames[-1].text == WAITS
    assert guilty.stacks == ()
    if "no data" in end:
        assert result.failure.last_lines[-1] == "no data"
    if "raise" in end:
        assert [frame.text for frame in result.failure.error.frames] == [end]


COLLECTIVE = """
    import os, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    dist.barrier()
    try:
        if os.environ["RANK"] == "1":
            raise ValueError("guilty")
        dist.all_reduce(torch.ones(1))
    finally:
        dist.destroy_process_group()
    """


def test_ranks_in_collectives_are_stopped_when_one_fails(launch):
    task = launch(COLLECTIVE, grace_seconds=LONG)
    result = task.result()
    assert (result.state, result.failure.rank, result.failure.error.type) == ("failed", 1, "ValueError"), task.events.output
    assert [rank.collateral for rank in result.ranks] == [True, False]
    # It had noticed by itself: the guilty rank closed its connections before it was through with its own error.
    frames = result.ranks[0].error.frames
    assert frames[0].text == "dist.all_reduce(torch.ones(1))"
    assert frames[-1].function == "all_reduce"


def test_a_rank_that_is_stuck_in_a_collective_shows_where(launch):
    source = """
        import os, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        dist.barrier()
        if os.environ["RANK"] == "1":
            while not os.path.exists("../output/in"):
                os.sched_yield()
            raise ValueError("guilty")
        open("../output/in", "w").close()
        dist.all_reduce(torch.ones(1))
        """
    task = launch(source, grace_seconds=LONG)
    result = task.result()
    assert (result.failure.rank, result.failure.error.message) == (1, "guilty")
    stopped = result.ranks[0]
    assert (stopped.collateral, stopped.signal) == (True, signal.SIGTERM)
    frames = stopped.stacks[0].frames
    assert frames[0].text == "dist.all_reduce(torch.ones(1))"
    assert "all_reduce" in {frame.function for frame in frames}


def test_cancel_lets_every_rank_unwind(launch):
    source = """
        import os, select
        try:
            print("ready", flush=True)
            while True:
                select.select([], [], [], 0.05)
        finally:
            open(f"../output/saved-{os.environ['RANK']}", "w").close()
        """
    task = launch(source, grace_seconds=LONG)
    for rank in range(2):
        task.events.wait_for("ready", rank)
    task.process.stop("cancel")
    result = task.result()
    assert (result.state, result.failure) == ("cancelled", None)
    assert [rank.exit_code for rank in result.ranks] == [130, 130]
    assert left_by(task) == ["saved-0", "saved-1"]


def test_the_rank_gets_the_signal_and_what_it_started_does_not(launch):
    source = """
        import os, signal, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "print('child', flush=True); import signal; signal.pause()"])
        def save(*_):
            open(f"../output/saved-{os.environ['RANK']}-{child.poll()}", "w").close()
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        signal.pause()
        """
    task = launch(source, grace_seconds=LONG)
    for rank in range(2):
        task.events.wait_for("child", rank)
    task.process.stop("cancel")
    assert task.result().state == "cancelled"
    assert left_by(task) == ["saved-0-None", "saved-1-None"]


def test_timeout_says_what_ranks_were_doing_and_ends_those_that_ignore_it(launch):
    source = f"""
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            {WAITS}
        """
    task = launch(source, grace_seconds=GRACE, timeout_seconds=4.0)
    result = task.result()
    assert (result.state, result.failure.reason) == ("failed", "timeout")
    for rank in result.ranks:
        assert rank.signal == signal.SIGKILL
        assert rank.stacks[0].frames[-1].text == WAITS


ESCAPES = """
    import os, signal, subprocess, sys
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(writer, b"%d" % os.getpid())
            signal.pause()
        os._exit(0)
    print(os.getpid(), child.pid, os.read(reader, 20).decode(), flush=True)
    """


@pytest.mark.parametrize("how", ["killed", "succeeded"])
def test_nothing_that_a_rank_left_lives_on_and_strangers_do(launch, stranger, how):
    task = launch(ESCAPES + ("signal.pause()\n" if how == "killed" else ""))
    for rank in range(2):
        task.events.wait_for("\n", rank)
    pids = [[int(word) for word in task.events.text(rank).split()] for rank in range(2)]
    watched = [WatchedProcess(pid) for all_of_one in pids for pid in all_of_one]
    if how == "killed":
        os.kill(pids[1][0], signal.SIGKILL)
    result = task.result()
    assert result.state == ("failed" if how == "killed" else "succeeded"), (result, task.events.output)
    assert all(process.has_ended() for process in watched)
    assert stranger.poll() is None
    for process in watched:
        process.close()


def test_a_job_after_one_that_died_starts_at_once(launch):
    died = launch("import os; os._exit(int(os.environ['RANK']))", folder="a")
    assert died.result().state == "failed"
    task = launch("print('up')", folder="b")
    assert task.result().state == "succeeded"
    assert [task.events.text(rank) for rank in range(2)] == ["up\n", "up\n"]


MEETS = """
    import os, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    print(dist.get_rank(), dist.get_world_size(), int(total), torch.get_num_threads())
    dist.destroy_process_group()
    """


def test_two_nodes_meet(launch, torch_threads):
    meeting = Meeting()
    tasks = [launch(MEETS, folder=str(node), node=node, nodes=2, devices=1, meeting=meeting) for node in range(2)]
    for node, task in enumerate(tasks):
        result = task.result()
        assert result.state == "succeeded", task.events.output
        assert task.events.text(node) == f"{node} 2 2 {torch_threads}\n"
        marks = result.ranks[0].marks
        assert list(marks) == ["launched", "entered", "imported", "met", "returned", "ended"]
        assert list(marks.values()) == sorted(marks.values())


def test_a_node_that_is_done_does_not_wait_for_the_other(launch):
    source = """
        import os
        print("up", flush=True)
        if os.environ["RANK"] == "1":
            while not os.path.exists("../output/go"):
                os.sched_yield()
        """
    meeting = Meeting()
    tasks = [launch(source, folder=str(node), node=node, nodes=2, devices=1, meeting=meeting) for node in range(2)]
    tasks[1].events.wait_for("up", 1)
    assert tasks[0].result().state == "succeeded"
    (tasks[1].workspace / "output" / "go").touch()
    assert tasks[1].result().state == "succeeded"
