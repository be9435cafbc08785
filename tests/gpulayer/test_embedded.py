from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from gpulayer import CommandJob, DistributedJob
from gpulayer.calls import CALLS
from gpulayer.embedded import EmbeddedControlPlane
from gpulayer.errors import Interrupted, Unsupported
from gpulayer.protocol import GetJob
from gpulayer.states import JobState


@pytest.fixture
def control_plane(tmp_path, monkeypatch):
    monkeypatch.setenv("GPULAYER_WORK_DIR", str(tmp_path / "work"))
    control_plane = EmbeddedControlPlane.open(tmp_path / "home")
    yield control_plane
    control_plane.close()


def test_one_home_has_one_control_plane_in_a_process(control_plane, tmp_path):
    assert EmbeddedControlPlane.open(tmp_path / "home") is control_plane
    other = EmbeddedControlPlane.open(tmp_path / "other")
    assert other is not control_plane
    other.close()


def test_its_records_go_to_who_configures_logging_and_nowhere_else(tmp_path):
    script = """
        import logging, sys
        from pathlib import Path
        from gpulayer.embedded import EmbeddedControlPlane
        place = EmbeddedControlPlane.open(Path(sys.argv[1]))
        logging.getLogger("gpulayer.control.control_plane").warning("unheard")
        logging.basicConfig(format="%(message)s")
        logging.getLogger("gpulayer.control.control_plane").warning("heard")
        place.close()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), tmp_path], capture_output=True, text=True, check=True)
    assert done.stderr == "heard\n"


def test_closed_it_answers_nobody_and_can_be_opened_again(control_plane, tmp_path):
    client = control_plane.client()
    job = client.submit(CommandJob(["true"]))
    control_plane.close()
    control_plane.close()
    with pytest.raises(Interrupted):
        client.health()
    with pytest.raises(Interrupted):
        control_plane.client()
    again = EmbeddedControlPlane.open(tmp_path / "home")
    assert again.client().job(job.id).state is JobState.QUEUED
    again.close()


def test_it_works_where_the_calling_thread_runs_a_loop(control_plane):
    async def ask():
        return control_plane.client().health().jobs_unfinished

    assert asyncio.run(ask()) == 0


def test_a_home_that_cannot_be_made_is_an_error_and_leaves_no_thread(tmp_path):
    (tmp_path / "file").write_text("")
    before = set(threading.enumerate())
    with pytest.raises((Unsupported, OSError)):
        EmbeddedControlPlane.open(tmp_path / "file")
    after = {thread for thread in threading.enumerate() if thread.name.startswith("gpulayer-")}
    assert after <= before


def test_what_a_job_lacks_is_started_for_it(control_plane, monkeypatch):
    monkeypatch.setattr("gpulayer.worker.agent.find_frameworks", lambda python: {})
    client = control_plane.client()
    client.ensure_local_workers(1, cpu_devices=1)
    started = client.start_workers_for(DistributedJob(script="x.py", nodes=2, devices=2, accelerator="cpu"))
    assert [len([device for device in worker.devices if device.accelerator == "cpu"]) for worker in started] == [2, 2]
    assert client.start_workers_for(DistributedJob(script="x.py", nodes=2, devices=2, accelerator="cpu")) == []
    assert len(client.workers()) == 3


def test_whatever_fails_in_closing_neither_the_loop_nor_its_thread_is_left(control_plane, monkeypatch):
    async def fail():
        raise RuntimeError("the disk is full")

    client = control_plane.client()
    monkeypatch.setattr(control_plane._control_plane, "close", fail)
    with pytest.raises(RuntimeError, match="disk is full"):
        control_plane.close()
    assert control_plane._loop.is_closed()
    assert not control_plane._thread.is_alive()
    with pytest.raises(Interrupted):
        client.health()


def test_whatever_stops_the_loop_whoever_waits_for_it_is_woken(control_plane):
    client, loop = control_plane.client(), control_plane._loop
    job = client.submit(CommandJob(["true"]))
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(client._transport.call, CALLS["wait_job"], GetJob(job_id=job.id, wait=30, after_revision=job.status.revision))
        loop.call_soon_threadsafe(loop.stop)
        with pytest.raises(Interrupted):
            held.result(10)
    control_plane._thread.join(10)
    with pytest.raises(Interrupted):
        control_plane.client().health()
    control_plane._thread = threading.Thread(target=loop.run_forever)  # so that it can be closed
    control_plane._thread.start()


def test_a_forked_child_neither_has_nor_closes_what_its_parent_opened(tmp_path):
    script = """
        import multiprocessing, os, sys, gpulayer
        from gpulayer.embedded import EmbeddedControlPlane

        def child():
            for ask in (client.health, lambda: client.workers()):
                try:
                    ask()
                except gpulayer.GPUlayerError as error:
                    print(type(error).__name__, flush=True)
            (opened,) = parents
            opened.close()
            print(EmbeddedControlPlane._open, flush=True)

        client = gpulayer.connect("local")
        parents = list(EmbeddedControlPlane._open.values())
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(30)
        print(process.exitcode, client.health().workers_alive, flush=True)
        process.kill()
    """
    env = {**os.environ, "GPULAYER_HOME": str(tmp_path / "home"), "GPULAYER_WORK_DIR": str(tmp_path / "work")}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=env, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == ["Unsupported", "Unsupported", "{}", "0 0"], done.stderr


def test_workers_and_jobs_end_with_the_process_and_their_end_is_stored(tmp_path):
    script = """
        import sys, gpulayer
        client = gpulayer.connect("local")
        client.ensure_local_workers(1, cpu_devices=1)
        job = client.submit(gpulayer.CommandJob(["python", "-c", "import os, signal; print(os.getpid(), flush=True); signal.pause()"]))
        print(job.id, next(job.follow_logs()).text, flush=True)
    """
    env = {**os.environ, "GPULAYER_HOME": str(tmp_path / "home"), "GPULAYER_WORK_DIR": str(tmp_path / "work")}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=env, capture_output=True, text=True, timeout=120, check=True)
    job_id, pid = done.stdout.split()
    assert not psutil.pid_exists(int(pid)), done.stderr
    control_plane = EmbeddedControlPlane.open(tmp_path / "home")
    try:
        assert control_plane.client().job(job_id).state.is_terminal
    finally:
        control_plane.close()
    assert "Traceback" not in done.stderr
