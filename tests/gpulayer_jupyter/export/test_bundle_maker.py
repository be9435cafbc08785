"""What makes an export: refusals with their place, a digest that depends on the source alone, nothing written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from gpulayer_jupyter.export import bundle_maker
from gpulayer_jupyter.export.bundle_maker import Surroundings, export_cell
from gpulayer_jupyter.export.history import runs_of
from gpulayer_jupyter.export.pieces import read_cell
from support.notebook import export_after, text_of, transform

from gpulayer import settings
from gpulayer.errors import NotExportable, TooLarge


def test_name_that_nothing_binds_is_named_with_its_place_and_the_way_out() -> None:
    with pytest.raises(NotExportable) as refused:
        export_after(["x = 1"], "y = x\nprint(df)", bound=["df"])
    first, second = refused.value.two_lines().splitlines()
    assert first.startswith("'df' (cell 2, line 3)")
    assert "--input" in second


def test_name_that_an_earlier_statement_needs() -> None:
    with pytest.raises(NotExportable, match=r"'df' \(cell 1, line 2\)"):
        export_after(["x = 1\nz = df + 1"], "print(z)")


def test_name_that_a_function_needs_later() -> None:
    with pytest.raises(NotExportable, match=r"'df' \(cell 1, line 2\)"):
        export_after(["def f():\n    return df"], "f()", bound=["df"])


def test_records_of_ipython() -> None:
    with pytest.raises(NotExportable, match=r"'_3' .* one of IPython's own records"):
        export_after([], "print(_3)", bound=["_3"])


def test_name_from_an_earlier_job_says_where_it_lives() -> None:
    cells = ["%%gpulayer --devices 2\nimport os\n\ndef f():\n    return 1"]
    with pytest.raises(NotExportable, match=r"'f' \(cell 2, line 2\) was made in a %%gpulayer cell \(cell 1, line 4\)"):
        export_after(cells, "f()")


def test_name_bound_nowhere_is_left_to_python() -> None:
    assert export_after([], "try:\n    nowhere\nexcept NameError:\n    pass").missing == ("nowhere",)


def test_digest_depends_on_the_source_alone(tmp_path: Path) -> None:
    history = ["import json", "x = {'a': 1}", "def f():\n    return json.dumps(x)"]
    first = export_after(history, "print(f())", folder=tmp_path)
    later = runs_of([*history, "unused = 1", "x"])
    for run in later.runs:
        run.cell += 10
    other = tmp_path / "elsewhere"
    other.mkdir()
    assert export_after(later, "print(f())", folder=other).bundle.digest() == first.bundle.digest()
    assert export_after(history, "print(f(), 1)", folder=tmp_path).bundle.digest() != first.bundle.digest()


def test_manifest_says_what_came_from_where() -> None:
    manifest = json.loads(text_of(export_after(["import msgspec\nx = 1"], "print(x, msgspec)"), "manifest.json"))
    assert manifest["packages"].keys() == {"msgspec"}
    assert manifest["python"] == sys.version.split()[0]
    assert "main.py:4-4 is cell 1 from line 1" in manifest["lines"]
    assert manifest["files"].keys() == {"main.py", "cell.py"}


def test_nothing_is_written_beside_the_notebook(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("mine = 1")
    (tmp_path / "helper.py").write_text("x = 1")
    tmp_path.chmod(0o555)
    before = sorted(path.name for path in tmp_path.iterdir())
    export_after(["import helper"], "print(helper.x)", folder=tmp_path)
    with pytest.raises(NotExportable):
        export_after([], "print(df)", folder=tmp_path, bound=["df"])
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "main.py").read_text() == "mine = 1"
    tmp_path.chmod(0o755)


def test_too_large_names_the_largest_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pkg").mkdir()
    for number in range(12):
        (tmp_path / f"pkg/data{number:02}.bin").write_bytes(b"x" * (10_000 + number))
    (tmp_path / "pkg/__init__.py").write_text("")
    monkeypatch.setattr(bundle_maker, "BUNDLE_LIMIT_BYTES", 50_000)
    with pytest.raises(TooLarge) as refused:
        export_after(["import pkg"], "pkg", folder=tmp_path)
    assert refused.value.found is not None
    assert refused.value.found.count(".bin") == 10
    assert refused.value.found.startswith("pkg/data11.bin")
    assert settings.BUNDLE_LIMIT_BYTES == 256 * 1024 * 1024


@pytest.mark.parametrize(
    ("cells", "failed", "body", "told"),
    [
        (["done = []", "for v in (1, 0):\n    done.append(6 // v)"], 2, "print(done)", "Cell 2, line 1 raised: what it had done to 'done'"),
        (
            ["s = {'n': 0}\ndef f():\n    s['n'] = 1\n    1 / 0", "f()"],
            1,
            "t = s\nprint(t)",
            "Cell 2, line 1 raised: what it had done to 's'",
        ),
        (["d = []\ne = d", "d.append(1 / 0)"], 1, "print(e)", "Cell 2, line 1 raised: what it had done to 'd', 'e'"),
        (["d = []", "%%time\nd.append(1)\n1 / 0"], 1, "print(d)", "Cell 2, line 1 raised: what it had done to 'd'"),
        (["d = []", "d.append(1 / 0)", "d = [2]"], 1, "print(d)", ""),
        (["d = []\ne = 1", "d.append(1 / 0)"], 1, "print(e)", ""),
        (["d = 1", "d = 1 / 0"], 1, "print(d)", ""),
        (["import os\nos.chdir('data')"], None, "print(open('vals.txt').read())", "Cell 1, line 2 changes the working directory"),
        (["import os\nos.chdir('data')"], None, "print(1)", ""),
    ],
)
def test_what_cells_did_and_ranks_do_not_is_said_to_whoever_may_notice(cells: list[str], failed: int | None, body: str, told: str) -> None:
    history = runs_of(cells)
    if failed is not None:
        history.runs[1].failed_line = failed
    behind = export_after(history, body).left_behind
    assert [line[: len(told)] for line in behind] == ([told] if told else [])


def test_a_folder_that_input_files_lie_in_is_gone_into(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/vals.txt").write_text("7")
    pieces, _ = runs_of(["import os\nos.chdir('data')", "v = int(open('vals.txt').read())", "os.chdir('..')"]).pieces(transform)
    body = read_cell("print(v)", cell=4, transform=transform).pieces
    export = export_cell(pieces, body, Surroundings(folder=tmp_path), given=["data/vals.txt"])
    assert export.left_behind == ()
    assert "os.chdir('data')" in text_of(export)
    body = read_cell("print(v, open('new.txt', 'w'))", cell=4, transform=transform).pieces
    assert text_of(export_cell(pieces, body, Surroundings(folder=tmp_path), given=["data/vals.txt"])).count("os.chdir(") == 2


def test_a_name_that_was_deleted_is_told_with_the_place_where_it_was() -> None:
    with pytest.raises(NotExportable, match=r"'b' \(cell 2, line 2\) was deleted in cell 1, line 2"):
        export_after(["b = 2\ndel b"], "print(b)")
    export_after(["b = 2\ndel b\nb = 3"], "print(b)")
    export_after(["b = 2\nif b > 2:\n    del b"], "print(b)")


def test_a_name_that_is_nearly_one_of_the_kernels() -> None:
    for body, close in (("trian(1)", "train"), ("pritn(1)", "print")):
        with pytest.raises(NotExportable, match=f"Did you mean '{close}'"):
            export_after(["def train(x):\n    return x"], body)
