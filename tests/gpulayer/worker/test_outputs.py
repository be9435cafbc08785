"""Which files are a job's outputs, what is left out and said, and that storing ends when it is told to."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from gpulayer.client.artifact_file import file_digest
from gpulayer.errors import InternalError, InvalidSpec
from gpulayer.worker.outputs import LeftOut, OutputStore, find_outputs
from gpulayer.worker.workspace import Workspace

WAIT_SECONDS = 30.0


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path / "task")
    made.create()
    return made


def _find(workspace: Workspace) -> tuple[list[str], list[str]]:
    said: list[str] = []
    left_out = LeftOut(said.append)
    found = find_outputs(workspace.output, workspace.path, left_out)
    left_out.close()
    return [path for path, _ in found], [line.removeprefix("Left out of the outputs: ") for line in said]


def test_outputs_are_regular_files_of_the_workspace_and_the_rest_is_named(workspace: Workspace) -> None:
    output = workspace.output
    (output / "b").mkdir()
    (output / "b" / "x").write_text("x")
    (output / "a").write_text("a")
    (output / "link").symlink_to("a")
    (output / "secret").symlink_to("/etc/passwd")
    (output / "etc").symlink_to("/etc")
    (output / "dangling").symlink_to("nowhere")
    (output / "loop").symlink_to("loop")
    os.mkfifo(output / "fifo")
    Path(os.fsdecode(os.fsencode(output) + b"/bad\xff")).write_text("bad")
    found, said = _find(workspace)
    assert found == ["a", "link", "b/x"]
    assert sorted(line.partition(":")[0] for line in said) == ["'bad\\udcff'", "'dangling'", "'etc'", "'fifo'", "'loop'", "'secret'"]


def test_a_folder_that_cannot_be_read_is_named(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace.output / "good").write_text("")
    (workspace.output / "locked").mkdir()
    scan = os.scandir

    def refuse(path):  # who runs the tests may be root, to whom no folder is closed
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert _find(workspace) == (["good"], ["'locked': Permission denied."])


def test_a_path_that_is_too_long_is_named(workspace: Workspace) -> None:
    here = os.open(workspace.output, os.O_RDONLY)
    try:
        for _ in range(20):
            os.mkdir("d" * 250, dir_fd=here)
            below = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
    finally:
        os.close(here)
    (workspace.output / "good").write_text("")
    found, said = _find(workspace)
    assert found == ["good"]
    assert len(said) == 1
    assert "too long" in said[0]


def test_an_output_folder_that_became_a_link_is_not_followed(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "private").write_text("")
    workspace.output.rmdir()
    workspace.output.symlink_to(tmp_path / "elsewhere")
    assert _find(workspace) == ([], ["'output': the output folder has been replaced by a link."])


def test_an_output_folder_that_is_gone_has_nothing_to_say(workspace: Workspace) -> None:
    workspace.output.rmdir()
    assert _find(workspace) == ([], [])


def test_of_many_that_are_left_out_some_are_named(workspace: Workspace) -> None:
    for number in range(50):
        (workspace.output / f"{number}").symlink_to("nowhere")
    said = _find(workspace)[1]
    assert len(said) == 21
    assert said[-1] == "30 more."


def _files(folder: Path, texts: dict[str, str]) -> list[tuple[str, Path]]:
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [(name, folder / name) for name in texts]


def test_each_content_is_stored_once(tmp_path: Path) -> None:
    put: list[Path] = []
    store = OutputStore(lambda file, sha256: put.append(file), LeftOut(pytest.fail))
    assert store.store(_files(tmp_path, {f"{number:03}": str(number % 10) for number in range(100)}))
    assert len(put) == 10
    assert [file.path for file in store.stored] == [f"{number:03}" for number in range(100)]
    assert store.stored[0].sha256 == file_digest(tmp_path / "000")[0]


def test_files_are_stored_side_by_side(tmp_path: Path) -> None:
    together = threading.Barrier(4)
    store = OutputStore(lambda file, sha256: together.wait(WAIT_SECONDS) and None, LeftOut(pytest.fail))
    assert store.store(_files(tmp_path, {name: name for name in "abcdefgh"}))
    assert len(store.stored) == 8


def test_a_file_that_cannot_be_read_is_left_out_and_named(tmp_path: Path) -> None:
    said: list[str] = []
    store = OutputStore(lambda file, sha256: None, LeftOut(said.append))
    assert store.store([*_files(tmp_path, {"a": "a", "b": "b"}), ("gone", tmp_path / "gone")])
    assert [file.path for file in store.stored] == ["a", "b"]
    assert said == ["Left out of the outputs: 'gone': No such file or directory."]


def test_a_refusal_is_raised_and_what_was_stored_stays(tmp_path: Path) -> None:
    def put(file: Path, sha256: str) -> None:
        if file.name == "b":
            raise InvalidSpec("Not this one.")

    store = OutputStore(put, LeftOut(pytest.fail))
    with pytest.raises(InvalidSpec):
        store.store(_files(tmp_path, {"b": "b"}))
    store = OutputStore(lambda file, sha256: None, LeftOut(pytest.fail))
    assert store.store([])
    assert store.stored == ()


def test_stop_ends_it_while_an_upload_hangs(tmp_path: Path) -> None:
    hangs, go_on = threading.Event(), threading.Event()

    def put(file: Path, sha256: str) -> None:
        if file.name != "a":
            hangs.set()
            go_on.wait(WAIT_SECONDS)
            raise InternalError("interrupted")

    store = OutputStore(put, LeftOut(pytest.fail))
    files = _files(tmp_path, {"a": "a", "b": "b"})
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(store.store(files)))
    thread.start()
    assert hangs.wait(WAIT_SECONDS)
    store.stop()
    thread.join(WAIT_SECONDS)
    assert results == [False]
    go_on.set()
