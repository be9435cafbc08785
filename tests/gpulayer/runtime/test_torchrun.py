"""Distributed tasks, with the real torchrun; each test costs the import of torch in a launcher, some in ranks too."""

from __future__ import annotations

import os
import signal
import socket
import sys

import pytest
from support.runtime import Meeting, start_task

from gpulayer.runtime import torchrun_main
from gpulayer.runtime.torchrun_main import torchrun_words

ALL_REDUCE = """
    import os, sys, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    total = torch.ones(1) * rank
    dist.all_reduce(total)
    for number in range(3):
        print(f"{rank}: {total.item():g} of {dist.get_world_size()}, local {os.environ['LOCAL_RANK']}")
    sys.stdout.write(f"no newline {rank}")
    dist.destroy_process_group()
    """


def test_torch_learns_this_machines_name_without_a_name_server(monkeypatch):
    monkeypatch.setattr(socket, "getfqdn", socket.getfqdn)  # put back at the end
    asked = []
    for question in ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr"):
        monkeypatch.setattr(socket, question, lambda *words: asked.append(words))
    torchrun_main._ask_nobody_for_our_name()
    assert (socket.getfqdn(), socket.getfqdn("a-name")) == (socket.gethostname(), "a-name")
    assert asked == []


def test_two_ranks_captured_apart(keeper, tmp_path):
    task = start_task(keeper, tmp_path, {"main.py": ALL_REDUCE}, script="main.py", devices=2)
    result = task.result()
    assert result.state == "succeeded", (result, task.events.output)
    for rank in (0, 1):
        assert task.events.text(rank) == f"{rank}: 1 of 2, local {rank}\n" * 3 + f"no newline {rank}"
    assert [(outcome.rank, outcome.local_rank, outcome.exit_code, outcome.returned) for outcome in result.ranks] == [
        (0, 0, 0, True),
        (1, 1, 0, True),
    ]
    assert result.ranks[0].pid != result.ranks[1].pid
    assert task.events.text(None) == ""
    assert task.events.text(None, "stderr") == ""


def test_two_nodes_meet_and_a_failure_on_one_is_reported_before_its_siblings_end(keeper, tmp_path):
    meeting = Meeting()
    source = ALL_REDUCE.replace(
        "dist.destroy_process_group()",
        """
    sys.stdout.flush()
    if rank == 3:
        raise ValueError("boom")
    try:
        dist.barrier()
    finally:
        dist.barrier()
    """,
    )
    tasks = [
        start_task(keeper, tmp_path / str(node), {"main.py": source}, script="main.py", devices=2, node=node, nodes=2, meeting=meeting)
        for node in range(2)
    ]
    result = tasks[1].result()
    assert result.state == "failed"
    assert result.failure.rank == 3
    assert result.failure.error.message == "boom"
    assert result.failure.device == "cpu:1"
    assert [outcome.collateral for outcome in result.ranks] == [True, False]
    assert result.ranks[1].exit_code == 1
    assert [failure.rank for failure in tasks[1].events.failures] == [3]
    tasks[0].process.stop("collateral")
    other = tasks[0].result(20)
    assert all(outcome.collateral or outcome.error for outcome in other.ranks)
    for rank in range(4):
        assert f"{rank}: 6 of 4, local {rank % 2}\n" in tasks[rank // 2].events.text(rank)


def test_the_exit_of_the_guilty_rank_is_kept_and_its_stubborn_sibling_ends(keeper, tmp_path):
    source = """
        import os, pathlib, signal, threading
        deaf = pathlib.Path("deaf")
        if os.environ["RANK"] == "1":
            while not deaf.exists():
                threading.Event().wait(0.01)
            os._exit(7)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        deaf.touch()
        while True:
            signal.pause()
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, script="main.py", devices=2)
    result = task.result()
    assert (result.failure.rank, result.failure.exit_code, result.failure.signal) == (1, 7, None)
    assert (result.ranks[0].signal, result.ranks[0].collateral) == (signal.SIGKILL, True)


def test_each_rank_has_the_whole_grace_on_cancel(keeper, tmp_path):
    source = """
        import os, signal, sys, threading
        def save(*_):
            # The other rank ends at once: that must not shorten the time of this one.
            threading.Event().wait(2.0 if os.environ["RANK"] == "1" else 0)
            open("../output/" + os.environ["RANK"], "w").close()
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        print("ready", flush=True)
        while True:
            signal.pause()
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, script="main.py", devices=2, grace_seconds=60)
    for rank in (0, 1):
        task.events.wait_for("ready", rank)
    task.process.stop("cancel")
    assert task.result().state == "cancelled"
    assert sorted(path.name for path in (tmp_path / "output").iterdir()) == ["0", "1"]


def test_an_environment_without_torch_shows_its_stderr(keeper, tmp_path):
    files = {"main.py": "", "sitecustomize.py": "import sys; sys.modules['torch'] = None"}
    task = start_task(keeper, tmp_path, files, script="main.py", devices=1, env={"PYTHONPATH": str(tmp_path / "source")})
    result = task.result()
    assert result.state == "failed"
    assert result.failure.reason == "launcher"
    assert "torchrun) exited with code 1 before its ranks ran" in result.failure.message
    assert "torch" in result.failure.last_lines[-1]


def test_a_rank_that_never_reaches_its_script(keeper, tmp_path):
    # Loads in the launcher and breaks in the rank, where torchrun has set RANK.
    files = {"main.py": "", "sitecustomize.py": "import os\nif 'RANK' in os.environ: os._exit(9)"}
    task = start_task(keeper, tmp_path, files, script="main.py", devices=1, env={"PYTHONPATH": str(tmp_path / "source")})
    result = task.result()
    assert result.failure.reason == "launcher"
    assert "exited with code 9 before it reached its script" in result.failure.message


def test_the_words_for_torchrun():
    env = {
        "GPULAYER_JOB_ID": "j1",
        "GPULAYER_ATTEMPT": "2",
        "GPULAYER_NODES": "2",
        "GPULAYER_DEVICES": "4",
        "GPULAYER_CHANNEL": "/tmp/gpulayer-x/channel",
    }
    words = torchrun_words(["main.py", "--rdzv-id=mine"], env, python=sys.executable)
    assert {"--rdzv-backend=gpulayer", "--rdzv-id=j1.2", "--nnodes=2", "--nproc-per-node=4", "--max-restarts=0"} < set(words)
    assert words[-3:] == ["--launcher=torchrun", "main.py", "--rdzv-id=mine"]


def test_a_python_that_cannot_watch_ranks_is_refused_by_name(monkeypatch):
    monkeypatch.delattr(os, "waitid")
    with pytest.raises(SystemExit, match=r"os\.waitid.*macOS from 3\.13.*--python"):
        torchrun_main.main()
