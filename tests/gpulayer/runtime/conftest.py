from __future__ import annotations

import pytest

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


@pytest.fixture(params=["cold", "warm"])
def start(request, monkeypatch):
    """Each test once with new programs and once in parked interpreters; where they differ, the test says so."""
    monkeypatch.setenv("GPULAYER_START", "cold" if request.param == "cold" else "auto")
    return request.param
