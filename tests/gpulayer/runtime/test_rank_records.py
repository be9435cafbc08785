"""What ranks tell beside their output, from the rank's code to the agent."""

from __future__ import annotations

import socket
import threading

from support.runtime import rank_argv, start_task

from gpulayer.runtime import rank_records
from gpulayer.runtime.frames import FrameSocket
from gpulayer.runtime.rank_records import RankRecords

TELL = "from gpulayer.runtime.rank_records import records_of_process as found; found().add('metrics', {'step': %s})"


def test_records_come_in_order_and_all_of_them_before_the_end(keeper, tmp_path):
    source = """
        from gpulayer.runtime.rank_records import records_of_process
        records = records_of_process()
        for step in range(5000):
            records.add("metrics", {"step": step, "loss": 0.5, "text": "é漢🙂"})
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    assert task.result().state == "succeeded", task.events.output
    assert task.events.records == [(0, "metrics", {"step": step, "loss": 0.5, "text": "é漢🙂"}) for step in range(5000)]


def test_what_a_rank_forks_spawns_and_starts_speaks_for_it(keeper, tmp_path):
    source = f"""
        import multiprocessing, subprocess, sys
        def tell(step):
            {TELL % "step"}
        if __name__ == "__main__":
            tell(0)
            for number, how in enumerate(("fork", "spawn", "forkserver"), start=1):
                child = multiprocessing.get_context(how).Process(target=tell, args=(number,))
                child.start()
                child.join()
            subprocess.run([sys.executable, "-c", {TELL % 4!r}], check=True)
            tell(5)
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    assert task.result().state == "succeeded", task.events.output
    assert sorted(data["step"] for _, _, data in task.events.records) == [0, 1, 2, 3, 4, 5]
    assert {rank for rank, _, _ in task.events.records} == {0}


def test_each_rank_speaks_for_itself_also_when_it_fails(keeper, tmp_path):
    source = f"""
        import os
        os.environ["RANK"] = "7"  # a script may do as it likes
        {TELL % "int(os.environ['LOCAL_RANK'])"}
        raise SystemExit(3)
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, script="main.py", devices=2, launcher="direct")
    assert task.result().state == "failed"
    assert sorted(task.events.records) == [(0, "metrics", {"step": 0}), (1, "metrics", {"step": 1})]


def test_an_agent_that_takes_nothing_in_costs_no_memory_and_what_is_dropped_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_records, "_MOST_WAITING", 10)
    path = str(tmp_path / "channel")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        records = RankRecords(path, 3)
        with records._sending:  # as if the agent stood still
            for step in range(25):
                records.add("metrics", {"step": step})
        records.flush()
        connection, _ = listener.accept()
        frames = FrameSocket(connection)
        message = frames.receive_one()
        assert (message["rank"], message["lost"]) == (3, 15)
        assert [data["step"] for _, _, data in message["records"]] == list(range(15, 25))
        frames.close()
        records._frames.close()


def test_a_script_that_closes_all_files_goes_on_telling_and_keeps_its_own(keeper, tmp_path):
    source = """
        import os, socket
        from gpulayer.runtime.rank_records import records_of_process
        records = records_of_process()
        records.add("metrics", {"step": 0})
        records.flush()
        os.closerange(3, 64)
        pairs = [socket.socketpair() for _ in range(8)]
        records.add("metrics", {"step": 1})
        records.flush()
        for one, other in pairs:
            other.setblocking(False)
            one.send(b"mine")
            assert other.recv(100) == b"mine"
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    assert task.result().state == "succeeded", task.events.output
    assert [data["step"] for _, _, data in task.events.records] == [0, 1]


def test_a_forked_process_sends_nothing_of_its_parents(keeper, tmp_path):
    source = f"""
        import os, sys
        {TELL % "1"}
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    assert task.result().state == "succeeded", task.events.output
    assert task.events.records == [(0, "metrics", {"step": 1})]


def test_the_end_waits_for_an_agent_that_takes_nothing_in_and_then_no_longer(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_records, "_FLUSH_SECONDS", 1.0)
    path = str(tmp_path / "channel")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        records = RankRecords(path, 0)
        for _ in range(200):
            records.add("metrics", {"text": "x" * 10_000})
        flushing = threading.Thread(target=records.flush)
        flushing.start()
        flushing.join(30)
        assert not flushing.is_alive()
        listener.accept()[0].close()
        records._frames.close()


def test_outside_a_job_there_is_nobody_to_tell():
    assert rank_records.records_of_process() is None
