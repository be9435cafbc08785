from __future__ import annotations

import subprocess
import sys

import pytest
from support.runtime import plain_environment

from gpulayer.runtime.event_thread import EventThread
from gpulayer.runtime.process import Keeper
from gpulayer.runtime.zygote import Zygote


@pytest.fixture(scope="module")
def keeper():
    """One keeper for the tests of a file, as a worker has one for its tasks."""
    keeper = Keeper.start()
    yield keeper
    keeper.close()


@pytest.fixture(scope="module")
def zygote(keeper):
    """One that has torch, with two ranks parked."""
    zygote = Zygote(keeper, parked=2)
    assert zygote.wait_ready(lambda: False) is None
    yield zygote
    zygote.close()


@pytest.fixture
def stranger():
    """A process of the same parent that is none of a job's."""
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        yield stranger
        stranger.kill()


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder that Python takes packages from, as a keeper finds it at its start."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


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
