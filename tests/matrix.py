"""`make matrix`: the notebook's side on other versions of ipykernel, JupyterLab and Notebook, each in an environment of its own.

For each row: the tests of the kernel's side and of outputs in real kernels, then those in a browser that are marked `@matrix`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv" / "matrix"
UI_TESTS = ROOT / "labextension" / "ui-tests"
KERNEL_TESTS = ("tests/gpulayer_jupyter", "tests/e2e/test_notebook_output.py", "tests/e2e/test_main_job.py")


@dataclass(frozen=True)
class Row:
    """One environment.

    Args:
        name: of its folder, and in what is printed.
        pins: what it holds besides the development environment's packages.
        front_end: which of Jupyter's applications the browser opens.
        tests_kernel: whether the kernel's side is tested too; twice on the same ipykernel says nothing more.
    """

    name: str
    pins: tuple[str, ...]
    front_end: str = "lab"
    tests_kernel: bool = True


ROWS = (
    Row("lab-4.4-ipykernel-6.29", ("jupyterlab==4.4.*", "ipykernel==6.29.*")),
    Row("lab-4.6-ipykernel-7", ("jupyterlab==4.6.*", "ipykernel==7.*")),
    Row("notebook-7.4", ("notebook==7.4.*", "ipykernel==6.29.*"), front_end="notebook", tests_kernel=False),
    Row("notebook-7.6", ("notebook==7.6.*", "ipykernel==7.*"), front_end="notebook", tests_kernel=False),
)


def main() -> int:
    """Run the rows; the exit code tells whether all of them passed."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("rows", nargs="*", help=f"of {', '.join(row.name for row in ROWS)}; all without any")
    chosen = made.parse_args().rows
    unknown = set(chosen) - {row.name for row in ROWS}
    if unknown:
        made.error(f"There is no row {', '.join(sorted(unknown))}.")
    outcomes = {row.name: run(row) for row in ROWS if not chosen or row.name in chosen}
    print("\n" + "\n".join(f"{name:26} {outcome}" for name, outcome in outcomes.items()))
    return 0 if all(outcome.endswith("passed") for outcome in outcomes.values()) else 1


def run(row: Row) -> str:
    """Install and test one row; what came of it in words, with the versions that were found."""
    print(f"== {row.name}", flush=True)
    python = install(row)
    versions = ", ".join(f"{name} {version(python, name)}" for name in ("ipykernel", "jupyterlab", "notebook"))
    if row.tests_kernel and subprocess.run([python, "-m", "pytest", "-q", *KERNEL_TESTS], cwd=ROOT).returncode:
        return f"{versions}: tests of the kernel's side failed"
    env = {**os.environ, "GPULAYER_PYTHON": str(python), "GPULAYER_FRONT_END": row.front_end}
    if subprocess.run(["node", "node_modules/.bin/playwright", "test", "--grep", "@matrix"], cwd=UI_TESTS, env=env).returncode:
        return f"{versions}: tests in the browser failed"
    return f"{versions}: passed"


def install(row: Row) -> Path:
    """The row's interpreter; its environment is made anew where its pins are others than before."""
    folder = FOLDER / row.name
    python = folder / "bin" / "python"
    stamp = folder / ".pins"
    pins = "\n".join(row.pins)
    if not stamp.exists() or stamp.read_text() != pins:
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
        env = {**os.environ, "HATCH_BUILD_NO_HOOKS": "true"}
        argv = [*uv, "pip", "install", "--quiet", "--python", python, "-e", ".[dev]", "torch==2.13.0", *row.pins]
        subprocess.run(argv, cwd=ROOT, env=env, check=True)
        stamp.write_text(pins)
    link = folder / "share" / "jupyter" / "labextensions" / "gpulayer"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(ROOT / "server" / "gpulayer_server" / "labextension")
    return python


def version(python: Path, package: str) -> str:
    """The installed version, or that there is none."""
    code = f"import importlib.metadata as m\ntry: print(m.version({package!r}))\nexcept m.PackageNotFoundError: print('-')"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
