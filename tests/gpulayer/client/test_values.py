"""Values from a job's outputs: what a rank or a worker says of them is checked, and what can't be read is named."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import types

import pytest
from support.plain_values import Settings, store

from gpulayer.client.values import class_finder, read_values, value_limit
from gpulayer.errors import InvalidSpec, NotFound
from gpulayer.plain_data.writing import write
from gpulayer.protocol import Digest, OutputFile


class Outputs:
    """A job's outputs, as files of a folder; a transport that gives them."""

    def __init__(self, folder):
        self._folder = folder
        self.fetched: list[str] = []
        self.sizes: dict[str, int] = {}

    def files(self):
        return [
            OutputFile(
                path=path.relative_to(self._folder).as_posix(),
                sha256=Digest(hashlib.sha256(path.read_bytes()).hexdigest()),
                size_bytes=self.sizes.get(path.name, path.stat().st_size),
            )
            for path in sorted(self._folder.rglob("*"))
            if path.is_file()
        ]

    def get_artifact(self, sha256, destination):
        for path in self._folder.rglob("*"):
            if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
                self.fetched.append(path.name)
                destination.write_bytes(path.read_bytes())
                return
        raise AssertionError(sha256)


def _name(kind):
    return f"__main__:{kind.__qualname__}"


@pytest.fixture
def outputs(tmp_path):
    folder = tmp_path / "fetched"
    index = {}
    values = {"a": [1, (2, 3)], "weights": bytearray, "settings": Settings(0.1, []), "b": "x" * 3000}
    for number, (name, value) in enumerate(values.items()):
        if value is bytearray:
            index[name] = {"why": "is a bytearray\x1b[31m\nand red"}
            continue
        store(write(value, name, stem=str(number), most_bytes=10**6, class_name=_name), str(number), folder)
        index[name] = {"file": str(number)}
    (folder / "values.json").write_text(json.dumps(index))
    return Outputs(tmp_path)


def _read(outputs, **options):
    options = {"most_bytes": 10**6, "namespace": {"Settings": Settings}, **options}
    return read_values(outputs, outputs.files(), **options)


def test_values_come_by_name_and_what_is_missing_says_why(outputs):
    values = _read(outputs)
    assert values == {"a": [1, (2, 3)], "settings": Settings(0.1, []), "b": "x" * 3000}
    assert values.missing == {"weights": "is a bytearray [31m and red"}


def test_only_the_names_that_were_asked_for(outputs):
    values = _read(outputs, names=["b", "unknown"])
    assert list(values) == ["b"]
    assert values.missing == {"unknown": "it was not sent back"}
    assert sorted(outputs.fetched) == ["3.json", "values.json"]


def test_what_is_too_large_is_not_fetched(outputs):
    values = _read(outputs, most_bytes=1000, names=["b", "a"])
    assert list(values) == ["a"]
    assert "over the limit of 0.001 MB for one value (GPULAYER_VALUE_LIMIT_MB)" in values.missing["b"]
    assert "3.json" not in outputs.fetched


def test_a_size_that_is_not_true_is_found_out(outputs):
    outputs.sizes["3.json"] = 5
    assert _read(outputs, names=["b"]).missing == {"b": "it is not of the size that it says"}


@pytest.mark.parametrize(
    "index",
    [b"[]", b"{", b'{"a": 3}', b'{"a": {"file": ["0"]}}', b"\xff"],
)
def test_an_index_that_is_none(index, outputs, tmp_path):
    (tmp_path / "fetched" / "values.json").write_bytes(index)
    with pytest.raises(NotFound, match="can't be read"):
        _read(outputs)


@pytest.mark.parametrize("stem", ["../0", "9", "", "values", "0.json"])
def test_an_index_that_leads_elsewhere(stem, outputs, tmp_path):
    (tmp_path / "fetched" / "values.json").write_text(json.dumps({"a": {"file": stem}}))
    assert list(_read(outputs).missing) == ["a"]


def test_a_job_that_sent_nothing(tmp_path):
    (tmp_path / "report.txt").write_text("x")
    outputs = Outputs(tmp_path)
    with pytest.raises(NotFound, match="sent no values back"):
        _read(outputs)


def test_an_index_larger_than_it_was_said_to_be(outputs, tmp_path):
    (tmp_path / "fetched" / "values.json").write_text(json.dumps({"a": {"why": "x" * 2_000_000}}))
    outputs.sizes["values.json"] = 100
    with pytest.raises(NotFound, match="can't be read"):
        _read(outputs)


def test_one_values_files_are_read_for_one_name(outputs, tmp_path):
    (tmp_path / "fetched" / "values.json").write_text(json.dumps({f"a{number}": {"file": "0"} for number in range(1000)}))
    values = _read(outputs)
    assert list(values) == ["a0"]
    assert outputs.fetched.count("0.json") == 1
    assert len(values.missing) == 999


def test_a_class_that_is_not_here_is_named(outputs):
    assert _read(outputs, namespace={}, names=["settings"]).missing == {
        "settings": "it holds a Settings, and there is no such class here: define it in a cell of its own"
    }


def test_classes_are_found_without_importing_or_running_anything(monkeypatch):
    module = types.ModuleType("loaded_module")
    module.Settings = Settings
    module.__getattr__ = lambda name: pytest.fail(f"asked for {name}")
    monkeypatch.setitem(sys.modules, "loaded_module", module)

    @dataclasses.dataclass
    class Outer:
        @dataclasses.dataclass
        class Inner:
            number: int

    find = class_finder({"Outer": Outer, "number": 3})
    assert find("__main__:Outer.Inner") is Outer.Inner
    assert find("loaded_module:Settings") is Settings
    for name in ("__main__:number", "__main__:missing", "loaded_module:other", "this.is.no.module:X", "os:system", "", ":", "a:b:c"):
        with pytest.raises(ValueError, match="no such class here"):
            find(name)
    assert "this" not in sys.modules


@pytest.mark.parametrize(("chosen", "limit"), [("", 64_000_000), ("0.5", 500_000), ("2", 2_000_000)])
def test_the_limit_is_a_setting(chosen, limit, monkeypatch):
    monkeypatch.setenv("GPULAYER_VALUE_LIMIT_MB", chosen)
    assert value_limit() == limit


@pytest.mark.parametrize("chosen", ["much", "0", "-1", "inf", "nan"])
def test_a_limit_that_is_none(chosen, monkeypatch):
    monkeypatch.setenv("GPULAYER_VALUE_LIMIT_MB", chosen)
    with pytest.raises(InvalidSpec, match="GPULAYER_VALUE_LIMIT_MB"):
        value_limit()
