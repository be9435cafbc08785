"""The notebooks against their executed reference copies, by nbval, with kernels that find a real server."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from support.served import NOTEBOOKS, Served, served_notebooks

pytestmark = pytest.mark.notebooks
REFERENCES = NOTEBOOKS / "reference"
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_notebooks(tmp_path_factory.mktemp("nbval")) as served:
        for reference in REFERENCES.glob("*.ipynb"):
            shutil.copy(reference, served.folder)
        yield served


def run_nbval(served: Served, notebook: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "support.nbval_displays", "--nbval"]
    command += ["--nbval-sanitize-with", str(REFERENCES / "sanitize.cfg"), "--nbval-cell-timeout", "180", "-c", "/dev/null", notebook]
    environment = os.environ | {"PYTHONPATH": str(TESTS), "GPULAYER_CONNECTION_FILE": str(served.server.connection_file)}
    return subprocess.run(command, cwd=served.folder, env=environment, capture_output=True, text=True)


def test_every_notebook_has_a_reference() -> None:
    assert sorted(path.name for path in REFERENCES.glob("*.ipynb")) == sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))


@pytest.mark.parametrize("name", sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")))
def test_sources_are_the_same(name: str) -> None:
    committed, reference = (nbformat.read(folder / name, as_version=4) for folder in (NOTEBOOKS, REFERENCES))
    assert [cell.source for cell in committed.cells] == [cell.source for cell in reference.cells]
    assert all(not cell.get("outputs") for cell in committed.cells)
    assert any(cell.get("outputs") for cell in reference.cells)


@pytest.mark.parametrize("name", sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")))
def test_outputs_are_the_same(served: Served, name: str) -> None:
    done = run_nbval(served, name)
    assert done.returncode == 0, done.stdout[-5000:]
    cells = [cell for cell in nbformat.read(REFERENCES / name, as_version=4).cells if cell.cell_type == "code"]
    assert f"{len(cells)} passed" in done.stdout


def test_an_altered_output_fails(served: Served) -> None:
    """The comparison bites: one digit of one rank's line is changed in a copy."""
    notebook = nbformat.read(REFERENCES / "01_quickstart.ipynb", as_version=4)
    altered = 0
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            text = output.get("data", {}).get("text/plain", "")
            if "accuracy 0." in text and "[rank 0]" in text:
                output["data"]["text/plain"] = text.replace("accuracy 0.", "accuracy 1.", 1)
                altered += 1
    assert altered == 1
    nbformat.write(notebook, served.folder / "altered.ipynb")
    done = run_nbval(served, "altered.ipynb")
    assert done.returncode == 1
    assert "1 failed" in done.stdout
