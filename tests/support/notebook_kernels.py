"""Runs notebooks of `notebook_files.py` in real shells, each in a process of its own, and lays out the program exported from each.

One process imports what shells need, and forks for each notebook. Says a notebook's name on stdout when its results are there.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[1])  # tests/, where `support` is found
sys.path.insert(0, str(Path(__file__).parent / "program_end"))

from gpulayer_jupyter.export.provider import export_magic_cell  # noqa: E402
from plain_forms import form, holds  # noqa: E402

from support.notebook import new_shell, unpack  # noqa: E402
from support.notebook_files import TOGETHER, Notebook, read_notebook  # noqa: E402

del sys.path[:2]  # a notebook has neither


def main() -> None:
    """Fork for each notebook, two at a time."""
    folder, *paths = map(Path, sys.argv[1:])
    running: dict[int, str] = {}
    for path in paths:
        if len(running) == TOGETHER:
            _wait(running)
        child = os.fork()
        if child == 0:
            _run_and_exit(read_notebook(path), folder / path.stem)
        running[child] = path.stem
    while running:
        _wait(running)


def _wait(running: dict[int, str]) -> None:
    child, _ = os.wait()
    print(running.pop(child), flush=True)


def _run_and_exit(notebook: Notebook, place: Path) -> None:
    place.mkdir()
    result: dict[str, Any] = {"error": "the kernel ended"}
    try:
        result = _run(notebook, place)
    except BaseException:  # whatever ends a kernel is what the test shows
        result = {"error": traceback.format_exc()}
    finally:
        (place / "kernel.json").write_text(json.dumps(result))
        sys.stderr.flush()
        os._exit(0)


def _run(notebook: Notebook, place: Path) -> dict[str, Any]:
    project = place / "project"
    (project / notebook.folder).mkdir(parents=True)
    for part in notebook.parts:
        if part.kind == "file":
            _write(project / part.argument, part.text)
    os.chdir(project / notebook.folder)
    sys.path.insert(0, "")  # as in a kernel
    shell = new_shell()
    shell.enable_gui = lambda gui=None: None  # as kernels have it, for %matplotlib
    exports: list[Any] = []

    def gpulayer(line: str, cell: str) -> None:
        exports.append(export_magic_cell(shell, cell))

    cells: list[str] = []
    loaded = False
    for part in notebook.parts:
        if part.kind == "edit":
            _write(project / part.argument, part.text)
        if part.kind not in ("cell", "raises", "run", "gpulayer"):
            continue
        text = cells[int(part.argument) - 1] if part.kind == "run" else part.text
        if part.kind == "gpulayer":
            text = f"%%gpulayer --devices 2\n{text}"
            if not loaded:
                _run_cell(shell, "%load_ext gpulayer")
                shell.register_magic_function(gpulayer, "cell", "gpulayer")
        cells.append(text)
        before = _listing(project)
        printed, error = _run_cell(shell, text)
        if part.kind == "gpulayer" and _listing(project) != before:
            raise AssertionError("the export wrote into the project")
        if type(error).__name__ != (part.argument if part.kind == "raises" else "NoneType"):
            raise AssertionError(f"cell {len(cells)}:\n{text}\n{type(error).__name__}: {error}\n{printed}")
        if "%load_ext gpulayer" in text:
            loaded = True
            shell.register_magic_function(gpulayer, "cell", "gpulayer")
    export = exports[-1]
    unpack(export.bundle, place / "program")
    (place / "script").write_text(export.script)
    printed, error = _run_cell(shell, notebook.body)
    if error is not None:
        raise AssertionError(f"the exported cell itself: {type(error).__name__}: {error}\n{printed}")
    names = shell.user_ns
    return {
        "values": {name: form(names[name]) for name in notebook.names() if name in names},
        "expect": [holds(text, names) for text in notebook.expect],
        "printed": printed,
    }


def _run_cell(shell: Any, text: str) -> tuple[str, BaseException | None]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        result = shell.run_cell(text, store_history=True)
    return out.getvalue(), result.error_before_exec or result.error_in_exec


def _listing(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*") if "__pycache__" not in str(path))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    main()
