"""Modules beside the notebook and in its project, found as Python finds them and never imported for it."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from gpulayer_jupyter.export.local_modules import LocalModules, ModuleSearch
from support.notebook import export_after, run_program


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def _find(source: str, folder: Path, *, path: tuple[str, ...] = ("",), roots: tuple[Path, ...] = ()) -> LocalModules:
    return _follow(source, roots=[folder, *roots], module_path=path, folders=[folder])


def _follow(source: str, **where: Any) -> LocalModules:
    search = ModuleSearch(**where)
    for _ in search.follow([ast.parse(source)]):
        pass
    return search.found


@pytest.mark.parametrize(
    ("files", "source", "travel"),
    [
        ({"helpers/data.py": "make = 1"}, "from helpers.data import make", {"helpers/data.py"}),
        (
            {"helpers/__init__.py": "", "helpers/data.py": "make = 1"},
            "from helpers import data",
            {"helpers/__init__.py", "helpers/data.py"},
        ),
        (
            {
                "helpers/__init__.py": "",
                "helpers/data.py": "from .low import x\nfrom . import other",
                "helpers/low.py": "x = 1",
                "helpers/other.py": "",
            },
            "import helpers.data",
            {"helpers/__init__.py", "helpers/data.py", "helpers/low.py", "helpers/other.py"},
        ),
        (
            {"first.py": "import second", "second.py": "def f():\n    import third", "third.py": "", "fourth.py": ""},
            "import first",
            {"first.py", "second.py", "third.py"},
        ),
        ({"a/b/c.py": "from ..d import x", "a/d.py": "x = 1"}, "import a.b.c", {"a/b/c.py", "a/d.py"}),
        ({"late.py": ""}, "import importlib\nimportlib.import_module('late')", {"late.py"}),
        (
            {
                "pkg/__init__.py": "",
                "pkg/words.txt": "a",
                "pkg/tables/t.json": "{}",
                "pkg/sub/__init__.py": "",
                "pkg/sub/big.bin": "",
                "pkg/.hidden": "",
                "pkg/__pycache__/x.pyc": "",
            },
            "import pkg",
            {"pkg/__init__.py", "pkg/words.txt", "pkg/tables/t.json"},
        ),
        ({"broken.py": "def ("}, "import broken", {"broken.py"}),
        ({"json.py": ""}, "import json, numpy, gpulayer", set()),
    ],
)
def test_closure(files: dict[str, str], source: str, travel: set[str], tmp_path: Path) -> None:
    _write(tmp_path, files)
    assert set(_find(source, tmp_path).files) == travel


def test_notebook_in_a_subfolder_of_its_project(tmp_path: Path) -> None:
    _write(tmp_path, {"lib/tools.py": "import deep", "deep.py": "x = 1", "nb/beside.py": "y = 1"})
    found = _find("import beside, lib.tools", tmp_path / "nb", path=("", str(tmp_path)), roots=(tmp_path,))
    assert found.files == {"beside.py": b"y = 1", "lib/tools.py": b"import deep", "deep.py": b"x = 1"}


def test_folder_above_after_sys_path_append(tmp_path: Path) -> None:
    _write(tmp_path, {"above.py": "x = 1", "nb/note": ""})
    assert set(_find("import above", tmp_path / "nb", path=("", "..")).files) == {"above.py"}
    assert not _find("import above", tmp_path / "nb", path=("", str(tmp_path))).files


def _loaded(name: str) -> ModuleSpec | None:
    return getattr(sys.modules.get(name), "__spec__", None)


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with modules that this process has imported, and that is on no module path any more."""
    _write(
        tmp_path, {"start/gpl_kept.py": "from gpl_pack.one import x", "start/gpl_pack/one.py": "x = 1", "start/gpl_pack/two.py": "y = 2"}
    )
    before = set(sys.modules)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path / "start"))
        patch.setattr(sys, "dont_write_bytecode", True)
        importlib.import_module("gpl_kept")
    yield tmp_path
    for name in sys.modules.keys() - before:
        del sys.modules[name]


def test_module_that_the_kernel_imported_is_found_where_it_was(imported: Path) -> None:
    source = "import gpl_kept, gpl_pack.two"
    elsewhere = imported / "elsewhere"
    found = _follow(source, roots=[imported / "start"], module_path=[""], folders=[elsewhere], loaded=_loaded)
    assert set(found.files) == {"gpl_kept.py", "gpl_pack/one.py", "gpl_pack/two.py"}
    # Another module of the name comes before it on the path since; the kernel goes on with its own.
    _write(imported, {"elsewhere/gpl_kept.py": "z = 1"})
    again = _follow(source, roots=[imported], module_path=[""], folders=[elsewhere], loaded=_loaded)
    assert again.files == found.files
    (imported / "start/gpl_kept.py").unlink()
    moved = _follow(source, roots=[imported], module_path=[""], folders=[elsewhere], loaded=_loaded)
    assert moved.files["gpl_kept.py"] == b"z = 1"


def test_module_that_may_be_executed_as_a_program_may_be_in_the_bundle_too(tmp_path: Path) -> None:
    _write(tmp_path, {"tool.py": "x = 1", "plain.py": "y = 1"})
    (tmp_path / "tool.py").chmod(0o755)
    assert _find("import tool, plain", tmp_path).files == {"tool.py": tmp_path / "tool.py", "plain.py": b"y = 1"}


def test_entries_are_read_against_the_folder_that_the_kernel_started_in_as_well(tmp_path: Path) -> None:
    _write(tmp_path, {"above.py": "", "nb/beside.py": "", "data/x.csv": ""})
    found = _follow(
        "import above, beside",
        roots=[tmp_path / "nb"],
        module_path=["", ".."],
        folders=[tmp_path / "data/deep", tmp_path / "nb"],
    )
    assert set(found.files) == {"above.py", "beside.py"}


def test_module_named_like_an_installed_one_is_the_one_that_is_found_first(tmp_path: Path) -> None:
    _write(tmp_path, {"msgspec.py": ""})
    assert set(_find("import msgspec", tmp_path, path=("", *sys.path)).files) == {"msgspec.py"}
    found = _find("import msgspec", tmp_path, path=(*sys.path, ""))
    assert (found.files, found.installed) == ({}, {"msgspec"})


@pytest.mark.parametrize("source", [b"x = 1\0", b"\xff\xfe", b"# coding: nowhere\n", b"-" * 20_000 + b"1", b"(" * 500])
def test_module_that_python_cannot_read_travels(source: bytes, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_bytes(source)
    assert set(_find("import broken", tmp_path).files) == {"broken.py"}


def test_environment_in_the_project_does_not_travel(tmp_path: Path) -> None:
    _write(tmp_path, {".venv/lib/python3/site-packages/pack.py": ""})
    found = _find("import pack", tmp_path, path=(str(tmp_path / ".venv/lib/python3/site-packages"),))
    assert not found.files
    assert found.installed == {"pack"}


def test_program_runs_with_its_modules(tmp_path: Path) -> None:
    project = tmp_path / "project"
    _write(project, {"helpers/data.py": "from .low import x\ndef make():\n    return x", "helpers/low.py": "x = 41"})
    export = export_after(["from helpers.data import make"], "print(make() + 1)", folder=project, module_path=("",))
    assert export.modules == ("helpers", "helpers.data", "helpers.low")
    assert run_program(export, tmp_path / "worker").stdout == "42\n"


def test_edited_helper_travels_as_it_is_and_changes_the_digest(tmp_path: Path) -> None:
    _write(tmp_path, {"helper.py": "x = 1"})
    first = export_after(["import helper"], "print(helper.x)", folder=tmp_path).bundle.digest()
    again = export_after(["import helper"], "print(helper.x)", folder=tmp_path).bundle.digest()
    _write(tmp_path, {"helper.py": "x = 2"})
    edited = export_after(["import helper"], "print(helper.x)", folder=tmp_path)
    assert first == again != edited.bundle.digest()
    assert run_program(edited, tmp_path / "worker").stdout == "2\n"


def test_modules_named_like_the_programs_files(tmp_path: Path) -> None:
    _write(tmp_path, {"main.py": "x = 1", "cell.py": "y = 2"})
    export = export_after(["import main", "from cell import y"], "print(main.x, y)", folder=tmp_path)
    assert run_program(export, tmp_path / "worker").stdout == "1 2\n", export.bundle.files
    assert export.script == "gpulayer_main.py"


def test_modules_named_like_what_the_programs_files_are_called_then(tmp_path: Path) -> None:
    _write(tmp_path, {"main.py": "x = 1", "gpulayer_main.py": "y = 2", "cell/part.py": "z = 3"})
    export = export_after(["import main, gpulayer_main, cell.part as part"], "print(main.x, gpulayer_main.y, part.z)", folder=tmp_path)
    assert export.script == "gpulayer__main.py"
    assert run_program(export, tmp_path / "worker").stdout == "1 2 3\n", export.bundle.files
