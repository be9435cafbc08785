"""Cells, shells and exported programs for tests of the notebook's side."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from gpulayer_jupyter.export.bundle_maker import Export, Surroundings, export_cell
from gpulayer_jupyter.export.history import History, runs_of
from gpulayer_jupyter.export.pieces import read_cell
from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from gpulayer.bundle.archive import Bundle

transform = TransformerManager().transform_cell


def leave_nothing_behind(monkeypatch: pytest.MonkeyPatch, place: Path, folder: str) -> None:
    """Work in a folder of this place, as a kernel does; what GPUlayer keeps is kept beside it, and no server is known."""
    monkeypatch.setenv("GPULAYER_HOME", str(place / "home"))
    monkeypatch.setenv("GPULAYER_WORK_DIR", str(place / "work"))
    for name in ("GPULAYER_URL", "GPULAYER_TOKEN", "GPULAYER_CONNECTION_FILE"):
        monkeypatch.delenv(name, raising=False)
    (place / folder).mkdir()
    monkeypatch.chdir(place / folder)


def new_shell() -> InteractiveShell:
    """A real shell of its own, without a history file."""
    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.xmode = "Plain"
    return InteractiveShell(config=config)


def export_after(
    cells: Sequence[str] | History,
    body: str,
    *,
    folder: Path = Path("/nonexistent"),
    module_path: Sequence[str] = (),
    bound: Sequence[str] = (),
) -> Export:
    """The program for `%%gpulayer` with this body, after these cells ran."""
    history = cells if isinstance(cells, History) else runs_of(cells)
    pieces, remote = history.pieces(transform)
    cell = read_cell(body, cell=len(history.runs) + 1, transform=transform, first_line=2)
    return export_cell(pieces, cell.pieces, Surroundings(bound=bound, folder=folder, module_path=module_path), remote=remote)


def text_of(export: Export, name: str = "main.py") -> str:
    content = export.bundle.files[name]
    assert isinstance(content, bytes)
    return content.decode()


def unpack(bundle: Bundle, folder: Path) -> Path:
    """Lay the bundle's files out as a worker does."""
    for name, content in bundle.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        assert isinstance(content, (bytes, Path))
        target.write_bytes(content if isinstance(content, bytes) else content.read_bytes())
    return folder


def run_program(export: Export, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python main.py` in a clean process, outside this checkout's module path."""
    unpack(export.bundle, folder)
    return subprocess.run([sys.executable, export.script, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def values_of(export_cells: Sequence[str], names: Sequence[str], folder: Path, **options: object) -> dict[str, str]:
    """What the exported program binds to these names, as repr."""
    body = "\n".join(
        [*(f"{name}" for name in names), f"print(__import__('json').dumps({{{', '.join(f'{name!r}: repr({name})' for name in names)}}}))"]
    )
    done = run_program(export_after(export_cells, body, **options), folder)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stderr
    values: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return values


def rerun(cells: Sequence[str]) -> dict[str, object]:
    """The namespace after the whole history."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for cell in cells:
        exec(compile(cell, "<cell>", "exec"), namespace)
    return namespace
