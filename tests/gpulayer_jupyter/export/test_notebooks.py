"""Whole notebooks, different in kind, run in a real shell and as exported programs: both bind the same values and print the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.notebook_files import NotebookRuns, read_notebook

PATHS = sorted((Path(__file__).parent / "notebooks").glob("*.txt"))


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NotebookRuns]:
    """Those that a test is going to ask for, all begun at once."""
    asked = {
        item.callspec.params.get("path")
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    }
    started = NotebookRuns([path for path in PATHS if path in asked], tmp_path_factory.mktemp("notebooks"))
    yield started
    started.close()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_program_binds_and_prints_what_the_notebook_does(path: Path, runs: NotebookRuns) -> None:
    notebook = read_notebook(path)
    both = runs.of(path.stem)
    assert not both.kernel.error, both.kernel.error
    assert not both.program.error, both.program.error
    assert both.kernel.expect == [True] * len(notebook.expect)
    assert both.program.values == both.kernel.values
    assert both.program.expect == both.kernel.expect
    again, allowed = both.printed_again(), "".join(notebook.texts("prints")).splitlines()
    assert [line for line in again if line not in allowed or again.count(line) > allowed.count(line)] == []


def test_there_are_enough_and_each_is_whole() -> None:
    notebooks = [read_notebook(path) for path in PATHS]
    assert len(notebooks) >= 30
    for notebook in notebooks:
        assert len(notebook.texts("cell", "raises", "run", "gpulayer")) >= 8, notebook.name
        assert len(notebook.texts("gpulayer")) == 1, notebook.name
        assert notebook.expect, notebook.name
        assert notebook.about, notebook.name
    assert len({notebook.about for notebook in notebooks}) == len(notebooks)
