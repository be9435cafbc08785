"""What was accepted, in a cell's metadata: signed by this home's key, told to the lab extension, never taken from anybody else."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import comm
import pytest
from gpulayer_jupyter.export.choices import remembered_by
from gpulayer_jupyter.export.kept_acceptances import KEY_NAME, AcceptanceKey, kept_key, marks_of_cell, own_key
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

from gpulayer.errors import NotExportable
from gpulayer.settings import home

# As a launched fit asks for the cell's source: what is sent is looked at, and no job runs.
ASKS = "from gpulayer.bundle.source_provider import current_provider\nsource = current_provider(in_terminal=print).collect() if x else 0"
WRITES = "def keep(value):\n    with open('log.txt', 'a') as file:\n        file.write('kept ')\n    return value"


class _Cell:
    """A front end with one cell, whose metadata it sends along and writes when it is told to."""

    def __init__(self, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shell = shell
        self.metadata: dict[str, Any] = {}
        self.extra: dict[str, Any] = {"cellId": "c1", "deletedCells": []}
        self.told: list[dict[str, Any]] = []
        monkeypatch.setattr(comm, "create_comm", self._open)
        monkeypatch.setattr(InteractiveShell, "kernel", object(), raising=False)
        monkeypatch.setattr(InteractiveShell, "get_parent", lambda _: {"metadata": {**self.metadata, **self.extra}}, raising=False)

    def _open(self, *, target_name: str, data: dict[str, Any], **_: Any) -> comm.base_comm.BaseComm:
        if target_name == "gpulayer.accepted":
            self.told.append(data)
            if "marks" in data:
                self.metadata.setdefault("gpulayer", {}).setdefault("rerun", {})[data["key"]] = data["marks"]
        return comm.DummyComm(target_name=target_name, data=data)

    def run(self, source: str) -> ExecutionResult:
        return self.shell.run_cell(source, store_history=True)


@pytest.fixture
def cell(current_shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> _Cell:
    return _Cell(current_shell, monkeypatch)


def _accept(cell: _Cell) -> None:
    """As a person does: run, be refused, accept, run again."""
    cell.run(WRITES)
    cell.run("x = keep(1)")
    assert not cell.run(ASKS).success
    assert cell.told == []
    cell.run("%gpulayer rerun all")
    assert cell.run(ASKS).success


def _forget_kernel(shell: InteractiveShell) -> None:
    """What a kernel's end does with what it had accepted."""
    remembered_by(shell).accepted.clear()


def test_accepted_for_a_cell_it_is_accepted_in_the_next_kernel(cell: _Cell, capsys: pytest.CaptureFixture[str]) -> None:
    _accept(cell)
    [told] = cell.told
    assert told["cell_id"] == "c1"
    assert len(told["marks"]) == 1
    _forget_kernel(cell.shell)
    capsys.readouterr()
    cell.run("%%gpulayer --dry-run\nprint('x is', x)")
    shown = capsys.readouterr().out
    assert "as accepted:\n    cell 2, line 1: writes files (open in keep), accepted in this notebook before: x = keep(1)\n" in shown
    assert cell.run(ASKS).success
    assert len(cell.told) == 1  # it stands there already
    assert cell.run(ASKS).success
    assert len(cell.told) == 1
    _forget_kernel(cell.shell)
    cell.run("x = keep(2)")
    assert isinstance(cell.run(ASKS).error_in_exec, NotExportable)


def test_what_the_same_words_do_otherwise_is_asked_about(cell: _Cell) -> None:
    _accept(cell)
    _forget_kernel(cell.shell)
    cell.run("import os\ndef keep(value):\n    os.system('true')\n    return value")
    cell.run("x = keep(1)")
    refused = cell.run(ASKS).error_in_exec
    assert isinstance(refused, NotExportable)
    assert "starts a process" in refused.message


def test_somebody_elses_marks_count_for_nothing(cell: _Cell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _accept(cell)
    theirs = cell.told[0]
    monkeypatch.setenv("GPULAYER_HOME", str(tmp_path / "mine"))
    _forget_kernel(cell.shell)
    assert not cell.run(ASKS).success  # no key here at all
    own = own_key()
    assert own.id != theirs["key"]
    for forged in (
        {own.id: theirs["marks"]},
        {own.id: "x" * 32},
        {own.id: [["a"], 1, None, "all", "0" * 32]},
        {own.id: {"all": True}},
        ["all"],
        "all",
    ):
        cell.metadata = {"gpulayer": {"rerun": forged}}
        assert not cell.run(ASKS).success
    cell.metadata = {"gpulayer": "odd", "rerun": {own.id: theirs["marks"]}}
    assert not cell.run(ASKS).success


def test_where_nothing_is_accepted_the_cells_old_marks_go(cell: _Cell) -> None:
    _accept(cell)
    cell.run("x = 1")
    assert cell.run(ASKS).success
    assert [told["marks"] for told in cell.told[1:]] == [[]]


def test_reset_forgets_in_the_notebook_too(cell: _Cell, capsys: pytest.CaptureFixture[str]) -> None:
    _accept(cell)
    capsys.readouterr()
    cell.run("%gpulayer rerun --reset")
    assert capsys.readouterr().out == "no side effects accepted\n"
    assert cell.told[-1] == {"key": cell.told[0]["key"], "forget": True}
    assert not cell.run(ASKS).success  # sent with the marks, before the front end took them away


@pytest.mark.parametrize("extra", [{}, {"cellId": "c1"}, {"cellId": 7, "deletedCells": []}], ids=["none", "an editor's", "odd"])
def test_front_ends_that_are_not_jupyterlabs_are_told_nothing(extra: dict[str, Any], cell: _Cell) -> None:
    cell.extra = extra
    _accept(cell)
    cell.run("%gpulayer rerun --reset")
    assert cell.told == []


def test_a_key_that_cannot_be_kept_is_said(cell: _Cell, capsys: pytest.CaptureFixture[str]) -> None:
    home().mkdir(parents=True)
    (home() / KEY_NAME).write_bytes(b"short")
    cell.metadata = {"gpulayer": {"rerun": {"0" * 16: ["0" * 32]}}}
    _accept(cell)
    assert f"accepted for this kernel only: {home() / KEY_NAME} holds no key; remove it\n" in capsys.readouterr().out
    cell.run("%gpulayer rerun --reset")
    assert cell.told == []


def test_a_key_that_cannot_be_read_is_no_matter_of_cells_without_side_effects(cell: _Cell, capsys: pytest.CaptureFixture[str]) -> None:
    (home() / KEY_NAME).mkdir(parents=True)
    cell.run("x = 1")
    assert cell.run(ASKS).success
    assert "accepted" not in capsys.readouterr().out


def test_the_key_is_one_and_its_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULAYER_HOME", str(tmp_path / "deep" / "home"))
    assert kept_key() is None
    with ThreadPoolExecutor(8) as pool:
        ids = {key.id for key in pool.map(lambda _: own_key(), range(16))}
    assert len(ids) == 1
    assert stat.S_IMODE((home() / KEY_NAME).stat().st_mode) == 0o600
    assert [path.name for path in home().iterdir()] == [KEY_NAME]
    found = kept_key()
    assert found is not None
    assert {found.id} == ids


def test_a_mark_says_what_and_not_where() -> None:
    key, other = AcceptanceKey(b"1" * 32), AcceptanceKey(b"2" * 32)
    mark = key.mark("x = f()", ["writes files (open)", "uses the network (get)"])
    assert mark == key.mark("x = f()", ["uses the network (get)", "writes files (open)"])
    others = [key.mark("x = f()", []), key.mark("x = g()", []), key.mark("x = f()", ["writes files"]), other.mark("x = f()", [])]
    assert len({mark, *others}) == 5


def test_a_shell_without_a_front_end_holds_nothing(shell: InteractiveShell) -> None:
    assert marks_of_cell(shell, AcceptanceKey(b"1" * 32)) == frozenset()
