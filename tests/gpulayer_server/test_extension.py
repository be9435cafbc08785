"""The extension in a real Jupyter server process, enabled by nothing but its installation."""

import json
import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.server import RunningServer, running_server

from gpulayer.errors import Unsupported, decode_error

LOCAL = "gpulayer/v1/workers/local"

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server") / "home", base_url="/user/x/") as server:
        yield server


def test_below_a_base_url(server: RunningServer) -> None:
    assert server.url.endswith("/user/x/")
    assert server.connection["base_url"] == "/user/x/"
    for token in (server.token, server.client_token):
        assert server.request("GET", "gpulayer/v1/health", token=token).json()["protocol"] == 1
    assert stat.S_IMODE(server.connection_file.stat().st_mode) == 0o600
    assert server.request("GET", "gpulayer/v1/openapi.json").json()["openapi"] == "3.1.0"


def test_local_workers(server: RunningServer) -> None:
    answer = server.request("POST", LOCAL, json={"count": 2, "python": sys.executable, "cpu_devices": 1}, timeout=70)
    assert answer.status_code == 200, answer.text
    assert [worker["local"] for worker in answer.json()["workers"]] == [True, True]
    processes = _worker_processes(server)
    assert len(processes) == 2
    for process in processes:
        assert os.getsid(process.pid) == process.pid
        assert not any("gpj_" in part for part in process.cmdline())
    processes[0].kill()
    processes[0].wait(10)  # psutil waits until the pid is gone, so a zombie would run into this
    assert processes[1].is_running()


def test_an_interpreter_without_gpulayer(server: RunningServer, tmp_path: Path) -> None:
    without = tmp_path / "python"
    without.write_text(f'#!/bin/sh\nexec {sys._base_executable} -S "$@"\n')
    without.chmod(0o700)
    answer = server.request("POST", LOCAL, json={"count": 1, "python": str(without)}, timeout=70)
    error = decode_error(answer.json())
    assert isinstance(error, Unsupported)
    assert "No module named gpulayer" in (error.found or "")


def test_a_killed_server_and_a_stopped_one(tmp_path: Path) -> None:
    with running_server(tmp_path / "home") as server:
        answer = server.request("POST", LOCAL, json={"count": 1, "python": sys.executable, "cpu_devices": 1}, timeout=70)
        assert answer.status_code == 200, answer.text
        (worker,) = _worker_processes(server)
        stale, token = server.connection_file, server.client_token
        server.kill()
        assert json.loads(stale.read_text())["pid"] == server.pid
        assert worker.is_running()
        server.restart()
        assert not stale.exists()
        assert server.request("GET", "gpulayer/v1/health", token=token).status_code == 401

        after = server.request("GET", "gpulayer/v1/events?limit=100000").json()["next"]
        answers = []

        def hold() -> None:
            answer = server.request("GET", f"gpulayer/v1/events?after={after + 1000}&wait=30", timeout=40)
            answers.append((answer.status_code, time.monotonic()))

        holders = [threading.Thread(target=hold) for _ in range(4)]
        for holder in holders:
            holder.start()
        deadline = time.monotonic() + 30
        while _connections(server) < len(holders) and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        began = time.monotonic()
        assert server.stop() == 0
        for holder in holders:
            holder.join(10)
        assert [status for status, _ in answers] == [503] * 4
        assert all(answered_at - began < 5 for _, answered_at in answers)
        assert not list((tmp_path / "home" / "servers").iterdir())
        assert worker.is_running()


def _worker_processes(server: RunningServer) -> list[psutil.Process]:
    return [child for child in psutil.Process(server.pid).children() if "--token-stdin" in child.cmdline()]


def _connections(server: RunningServer) -> int:
    return sum(1 for one in psutil.Process(server.pid).net_connections() if one.status == psutil.CONN_ESTABLISHED)
