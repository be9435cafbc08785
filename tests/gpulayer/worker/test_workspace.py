"""Workspaces: what lies where, what is refused, and that nothing stays behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpulayer.bundle.archive import Bundle
from gpulayer.errors import InvalidSpec
from gpulayer.protocol import Digest, InputFile
from gpulayer.worker.workspace import Workspace, WorkspaceRoot

ANY = Digest("0" * 64)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path / "task")
    made.create()
    return made


def test_an_input_stands_in_for_what_the_bundle_brought_under_its_path(workspace: Workspace, tmp_path: Path) -> None:
    Bundle({"data/train.csv": b"old", "folder/stale.txt": b"old", "main.py": b""}).write(tmp_path / "source.tar")
    workspace.unpack_source(tmp_path / "source.tar")
    (tmp_path / "file").write_bytes(b"fresh")
    Bundle({"a.txt": b"a"}).write(tmp_path / "folder.tar")
    workspace.add_input("table", InputFile(sha256=ANY, size_bytes=5, link="data/train.csv"), tmp_path / "file")
    workspace.add_input("many", InputFile(sha256=ANY, size_bytes=5, link="folder", archive=True), tmp_path / "folder.tar")
    assert (workspace.source / "data" / "train.csv").read_bytes() == b"fresh"
    assert [path.name for path in (workspace.source / "folder").iterdir()] == ["a.txt"]
    assert not (workspace.source / "folder").readlink().is_absolute()
    # A job that changes its input changes its own copy.
    (workspace.source / "data" / "train.csv").write_bytes(b"changed")
    assert (tmp_path / "file").read_bytes() == b"fresh"


@pytest.mark.parametrize(("name", "link"), [("../x", None), ("..", None), ("x", "../x"), ("x", "/etc/x"), ("x", "out/x")])
def test_an_input_never_leaves_the_workspace(workspace: Workspace, tmp_path: Path, name: str, link: str | None) -> None:
    (workspace.source / "out").symlink_to("/tmp")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidSpec):
        workspace.add_input(name, InputFile(sha256=ANY, size_bytes=0, link=link), tmp_path / "file")


def test_a_workspace_with_read_only_folders_is_removed(workspace: Workspace) -> None:
    locked = workspace.source / "a" / "b"
    locked.mkdir(parents=True)
    (locked / "file").write_text("")
    locked.chmod(0o500)
    locked.parent.chmod(0)
    workspace.remove()
    assert not workspace.path.exists()


def test_an_empty_workspace_is_used_again(tmp_path: Path) -> None:
    root = WorkspaceRoot(tmp_path / "all", "mine")
    first = root.workspace("first")
    first.create()
    inode = first.path.stat().st_ino
    first.remove()
    assert not first.path.exists()
    second = root.workspace("second")
    second.create()
    assert second.path.stat().st_ino == inode
    assert {path.name for path in second.path.iterdir()} == {"source", "inputs", "output"}
    root.close()


@pytest.mark.parametrize("change", ["file", "folder", "mode", "link", "missing", "extra"])
def test_a_workspace_that_a_job_changed_is_not_used_again(tmp_path: Path, change: str) -> None:
    root = WorkspaceRoot(tmp_path / "all", "mine")
    first = root.workspace("first")
    first.create()
    inode = first.path.stat().st_ino
    match change:
        case "file":
            (first.output / "result").touch()
        case "folder":
            (first.source / "__pycache__").mkdir()
        case "mode":
            first.inputs.chmod(0o750)
        case "link":
            first.output.rmdir()
            first.output.symlink_to("/tmp")
        case "missing":
            first.source.rmdir()
        case "extra":
            (first.path / "more").touch()
    first.remove()
    assert not first.path.exists()
    second = root.workspace("second")
    assert not [path for path in root.path.iterdir() if path.stat().st_ino == inode]
    second.create()
    assert {path.name for path in second.path.iterdir()} == {"source", "inputs", "output"}
    assert not any(second.output.iterdir())
    root.close()


def test_what_a_dead_agent_left_is_removed_by_the_next_and_a_live_ones_stays(tmp_path: Path) -> None:
    live = WorkspaceRoot(tmp_path / "all", "live")
    program = (
        "import os, sys; from pathlib import Path; from gpulayer.worker.workspace import WorkspaceRoot\n"
        "root = WorkspaceRoot(Path(sys.argv[1]), 'dead'); root.workspace('task').create(); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path / "all")], check=False).returncode == 9
    assert (tmp_path / "all" / "dead" / "task").exists()
    third = WorkspaceRoot(tmp_path / "all", "third")
    assert {path.name for path in (tmp_path / "all").iterdir()} == {"live", "third"}
    for root in (live, third):
        root.close()
    assert list((tmp_path / "all").iterdir()) == []
