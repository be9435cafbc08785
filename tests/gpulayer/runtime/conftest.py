from __future__ import annotations

import subprocess
import sys

import pytest
from support.runtime import plain_environment

from gpulayer.runtime.event_thread import EventThread
from gpulayer.runtime.process import Keeper


@pytest.fixture(scope="module")
def keeper():
    """One keeper for the tests of a file, as a worker has one for its tasks."""
    keeper = Keeper.start()
    yield keeper
    keeper.close()


@pytest.fixture
def thread():
    """What a keeper gives its tasks to wait with."""
    thread = EventThread()
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def torch_threads():
    """How many threads torch takes by itself, which is not the number of cores everywhere."""
    program = [sys.executable, "-c", "import torch; print(torch.get_num_threads())"]
    return int(subprocess.run(program, stdout=subprocess.PIPE, env=plain_environment(), check=True).stdout)


@pytest.fixture(params=["cold", "warm"])
def start(request, monkeypatch):
    """Each test once with new programs and once in parked interpreters; where they differ, the test says so."""
    monkeypatch.setenv("GPULAYER_START", "cold" if request.param == "cold" else "auto")
    return request.param
