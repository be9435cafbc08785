from __future__ import annotations

import pytest

from gpulayer.runtime.process import Keeper


@pytest.fixture(scope="module")
def keeper():
    """One keeper for the tests of a file, as a worker has one for its tasks."""
    keeper = Keeper.start()
    yield keeper
    keeper.close()
