"""Executes every notebook through a real server and keeps the outputs in `notebooks/reference/`, which nbval compares with."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from run_demo import running_server
from served_notebook import ServedKernel, execute_notebook

import gpulayer

HERE = Path(__file__).parent


def main() -> int:
    """Write one reference copy for each notebook."""
    (HERE / "reference").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpulayer-reference-") as folder, running_server(Path(folder)) as server:
        with gpulayer.connect(server["url"], token=server["token"]) as client:
            client.ensure_local_workers(2, cpu_devices=2)
        for path in sorted(HERE.glob("*.ipynb")):
            notebook = nbformat.read(path, as_version=4)
            with ServedKernel(server["url"], server["jupyter_token"], path.name) as kernel:
                execute_notebook(kernel, notebook)
            nbformat.write(notebook, HERE / "reference" / path.name)
            print(f"wrote reference/{path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
