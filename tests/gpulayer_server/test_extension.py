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


def test_local_workers_register_and_outlive_the_server(tmp_path: Path) -> None:
    with running_server(tmp_path / "home") as server:
        answer = server.request(
            "POST", "gpulayer/v1/workers/local", json={"count": 2, "python": sys.executable, "cpu_devices": 1}, timeout=70
        )
        assert answer.status_code == 200, answer.text
        workers = answer.json()["workers"]
        assert [worker["local"] for worker in workers] == [True, True]
        processes = [child for child in psutil.Process(server.pid).children() if "gpulayer" in " ".join(child.cmdline())]
        assert len(processes) == 2
        for process in processes:
            assert os.getsid(process.pid) == process.pid
            assert not any("gpj_" in part for part in process.cmdline())

        without = server.request("POST", "gpulayer/v1/workers/local", json={"count": 1, "python": sys._base_executable}, timeout=70)
        if without.status_code != 200:  # where the base interpreter has gpulayer too, it is a third worker
            assert "No module named gpulayer" in without.json()["error"]["found"]

        victim = processes[0]
        victim.kill()
        victim.wait(10)  # psutil waits until the pid is gone, so a zombie would run into this
        server.stop()
        assert processes[1].is_running()


def test_stops_in_time_and_leaves_nothing(tmp_path: Path) -> None:
    with running_server(tmp_path / "home") as server:
        after = server.request("GET", "gpulayer/v1/events?limit=100000").json()["next"]
        answers = []

        def hold() -> None:
            answers.append(server.request("GET", f"gpulayer/v1/events?after={after}&wait=30", timeout=40).status_code)

        holders = [threading.Thread(target=hold) for _ in range(4)]
        for holder in holders:
            holder.start()
        while psutil.Process(server.pid).net_connections() and _connections(server) < 4:
            threading.Event().wait(0.01)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 5
        for holder in holders:
            holder.join(10)
        assert answers == [503] * 4
        assert not list((tmp_path / "home" / "servers").iterdir())


def test_a_killed_server_s_file_is_replaced(tmp_path: Path) -> None:
    with running_server(tmp_path / "home") as server:
        stale, token = server.connection_file, server.client_token
        server.kill()
        assert json.loads(stale.read_text())["pid"] == server.pid
        server.restart()
        assert not stale.exists()
        assert server.request("GET", "gpulayer/v1/health", token=token).status_code == 401


def _connections(server: RunningServer) -> int:
    return sum(1 for one in psutil.Process(server.pid).net_connections() if one.status == psutil.CONN_ESTABLISHED)
