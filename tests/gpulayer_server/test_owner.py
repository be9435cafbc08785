"""Whose a job is that was submitted with Jupyter's own token: one owner, whoever holds the token and however often he calls."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.server import RunningServer, running_server

import gpulayer
from gpulayer import settings

SUBMIT = """
import sys, gpulayer
with gpulayer.connect(sys.argv[1], token=sys.argv[2]) as client:
    print(client.submit(gpulayer.CommandJob(argv=("true",)), idempotency_key="of two processes").id)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("owner") / "home") as server:
        yield server


def test_one_key_makes_one_job(server: RunningServer) -> None:
    with gpulayer.connect(server.url, token=server.token) as client:
        jobs = [client.submit(gpulayer.CommandJob(argv=("true",)), idempotency_key="of one client") for _ in range(2)]
        assert jobs[0].id == jobs[1].id
        assert jobs[0].status.owner == settings.os_user()
        jobs[1].cancel()


def test_one_key_of_two_processes_makes_one_job(server: RunningServer) -> None:
    argv = [sys.executable, "-c", SUBMIT, server.url, server.token]
    ids = {subprocess.run(argv, capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert len(ids) == 1
