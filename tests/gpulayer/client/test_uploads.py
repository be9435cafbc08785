from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from gpulayer.bundle.archive import Bundle
from gpulayer.bundle.unpack import extract_archive
from gpulayer.client.uploads import upload_bundle, upload_inputs
from gpulayer.errors import InvalidSpec


class Folder:
    """A transport that keeps artifacts in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def put_artifact(self, path, sha256):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256
        shutil.copy(path, self.folder / sha256)


def test_a_relative_input_is_also_linked_where_it_lay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/train.csv").write_text("a,b\n")
    transport = Folder(tmp_path / "store")
    inputs = upload_inputs(transport, {"near": "./data/train.csv", "far": str(tmp_path / "data/train.csv"), "up": "data/../data/train.csv"})
    assert {name: file.link for name, file in inputs.items()} == {"near": "data/train.csv", "far": None, "up": None}
    assert inputs["near"].sha256 == hashlib.sha256(b"a,b\n").hexdigest()
    assert (inputs["near"].size_bytes, inputs["near"].archive) == (4, False)


def test_a_folder_travels_as_an_archive(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tree/deep").mkdir(parents=True)
    Path("tree/deep/leaf").write_text("leaf")
    Path("tree/.gitignore").write_text("deep\n")
    transport = Folder(tmp_path / "store")
    file = upload_inputs(transport, {"tree": "tree"})["tree"]
    assert (file.archive, file.link) == (True, "tree")
    extract_archive(transport.folder / file.sha256, tmp_path / "out")
    assert (tmp_path / "out/deep/leaf").read_text() == "leaf"
    assert file.size_bytes == (transport.folder / file.sha256).stat().st_size


def test_an_input_that_is_missing_is_named(tmp_path):
    with pytest.raises(InvalidSpec, match="'train' is not there") as raised:
        upload_inputs(Folder(tmp_path / "store"), {"train": "no/such.csv"})
    assert "no/such.csv" in raised.value.two_lines()


def test_a_bundle_is_stored_under_its_own_digest(tmp_path):
    bundle = Bundle({"main.py": b"print(1)"})
    transport = Folder(tmp_path / "store")
    assert upload_bundle(transport, bundle) == bundle.digest()
    assert (transport.folder / bundle.digest()).is_file()
