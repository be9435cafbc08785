"""Fixtures of the end-to-end tests."""

from collections.abc import Iterator

import pytest
from served_notebook import ServedKernel
from support.served import Served, served_notebooks


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_notebooks(tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest.fixture
def kernel(served: Served) -> Iterator[ServedKernel]:
    """A kernel of its own for each test, in the folder of the helper modules."""
    with ServedKernel(served.server.url, served.server.token, "test.ipynb") as kernel:
        yield kernel
