"""Which distributions imports come from, and which entries of the module path a person added."""

from __future__ import annotations

import importlib.metadata
import sys
import sysconfig
from pathlib import Path

import pytest
from gpulayer_jupyter.export.installed_packages import entries_by_hand, package_versions


def test_names_and_versions_are_those_of_the_standard_library_s_slower_table() -> None:
    table = importlib.metadata.packages_distributions()
    for top in ("msgspec", "yaml", "PIL", "dateutil", "IPython", "six", "zmq", "attr", "_pytest"):
        expected = {name: importlib.metadata.version(name) for name in set(table[top])}
        assert package_versions([top]) == expected, top
    assert package_versions(["nothing_of_this_name", "json"]) == {}


def test_package_installed_later_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert package_versions(["gpl_other"]) == {}
    info = tmp_path / "gpl_late-2.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpl-late\nVersion: 2.5\n")
    (info / "RECORD").write_text("gpl_other/__init__.py,,\n../../bin/gpl,,\ngpl_single.py,,\ngpl_late-2.5.dist-info/METADATA,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert package_versions(["gpl_other", "gpl_single"]) == {"gpl-late": "2.5"}


def test_entries_by_hand_are_those_that_nothing_installed_put_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, given = tmp_path / "own", tmp_path / "given"
    monkeypatch.setenv("PYTHONPATH", str(given))
    paths = sysconfig.get_paths()
    repository = str(Path(__file__).parents[3])  # an editable install
    path = ["", "..", str(own), str(given), paths["purelib"], paths["stdlib"], str(Path(sys.executable).parent), repository]
    assert entries_by_hand(path) == [own.resolve()]
