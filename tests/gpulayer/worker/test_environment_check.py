"""What a program's manifest is compared with, what of it refuses, and what is only said. Interpreters are pretended but for one."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

import pytest

from gpulayer.client.environment_text import DIFFERENCES_SHOWN, differences_text
from gpulayer.errors import Unsupported
from gpulayer.worker import environment_check, interpreter_facts
from gpulayer.worker.environment_check import EnvironmentCheck, Manifest, compare, read_manifest
from gpulayer.worker.interpreter_facts import FactsOfInterpreters, InterpreterFacts, normalised

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def facts(python="3.11.7", implementation="cpython", **packages) -> InterpreterFacts:
    return InterpreterFacts(
        python=python, implementation=implementation, packages=packages, folders=(), tag="t", has_pip=True, has_ensurepip=True
    )


def manifest(python="3.11.2", packages=None, files=None, implementation="cpython", **more) -> dict:
    return {
        "format": 1,
        "python": python,
        "implementation": implementation,
        "packages": packages or {},
        "files": files or {},
        "cells": [],
        **more,
    }


def compared(facts, **fields):
    return compare(Manifest(**{name: value for name, value in manifest(**fields).items() if name != "cells"}), facts)


class Pretended:
    """Interpreters that have what they are said to have."""

    def __init__(self, facts) -> None:
        self.facts = facts
        self.asked = 0

    def of(self, python):
        self.asked += 1
        return self.facts


def write(folder: Path, fields, **files) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "manifest.json").write_text(json.dumps(fields))
    return folder


@pytest.mark.parametrize(
    ("fields", "found", "differences"),
    [
        ({}, facts(), ()),
        ({"packages": {"numpy": "2.1.0"}}, facts(numpy="2.1.0"), ()),
        ({"packages": {"torch": "2.13.0+cpu"}}, facts(torch="2.13.0+cu128"), ()),  # builds of one release
        ({"packages": {"numpy": "2.1.0-rc1"}}, facts(numpy="2.1.0rc1"), ()),
        ({"packages": {"Scikit_Learn": "1.5"}}, facts(**{"scikit-learn": "1.5"}), ()),
        ({"packages": {"numpy": "2.1.0"}}, facts(numpy="1.26.4"), ("numpy 2.1.0 there, 1.26.4 here",)),
        ({"packages": {"cupy": "13.0"}}, facts(), ("cupy 13.0 there, not installed here",)),
        ({"packages": {"torch": "2.13.1"}}, facts(torch="2.13.0"), ("torch 2.13.1 there, 2.13.0 here",)),
        ({"python": "3.12.1"}, facts(), ("Python 3.12.1 there, 3.11.7 here",)),
        ({"implementation": "pypy"}, facts(), ("pypy there, cpython here",)),
    ],
)
def test_what_differs_is_said_and_is_no_reason_not_to_run(fields, found, differences) -> None:
    verdict = compared(found, **fields)
    assert verdict.differences == differences
    assert verdict.refusal is None


@pytest.mark.parametrize(("here", "named"), [({"torch": "2.12.1"}, "2.12.1"), ({"torch": "1.13.0"}, "1.13.0"), ({}, "none")])
def test_another_minor_version_of_torch_is_refused_with_both_named(here, named) -> None:
    refusal = compared(facts(**here), packages={"torch": "2.13.0+cpu"}).refusal
    assert refusal.message == f"The program was written with torch 2.13.0+cpu, and this worker has {named}."
    assert "torch 2.13" in refusal.fix
    assert "--requirements" in refusal.fix


def test_the_versions_of_what_the_program_uses_are_kept_by_its_own_names() -> None:
    verdict = compared(facts(**{"scikit-learn": "1.5", "numpy": "2.0", "other": "1"}), packages={"Scikit_Learn": "1.4", "numpy": "2.0"})
    assert verdict.packages == {"Scikit_Learn": "1.5", "numpy": "2.0"}


def test_a_hostile_manifest_is_shown_short_and_on_one_line() -> None:
    verdict = compared(facts(numpy="1"), packages={"numpy": "2\n\x1b[31m" + "9" * 5000, **{f"p{at}": "1" for at in range(2000)}})
    text = differences_text(["w"], verdict.differences)
    assert len(verdict.differences) == environment_check.MOST_PACKAGES
    assert "\n" not in text
    assert "\x1b" not in text
    assert len(text) < 2000
    assert text.startswith("Worker w has other versions than where the program was written: numpy 2??[31m9999")
    assert text.endswith(f"and {environment_check.MOST_PACKAGES - DIFFERENCES_SHOWN} more.")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "no JSON",
        '{"name": "a web application", "icons": []}',
        '{"format": 2, "python": "4.0", "implementation": "cpython", "packages": {}, "files": {}}',
        '{"format": 1, "python": 3, "implementation": "cpython", "packages": {}, "files": {}}',
        "[" * 100_000,
        "\udcff",
    ],
)
def test_another_file_of_that_name_is_nothing_to_compare(tmp_path, text) -> None:
    (tmp_path / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    assert read_manifest(tmp_path) is None


def test_a_source_without_a_manifest_asks_no_interpreter(tmp_path) -> None:
    pretended = Pretended(facts())
    check = EnvironmentCheck(pretended, {})
    assert check.check("d1", tmp_path, "python") is None
    assert check.check("d1", tmp_path / "gone", "python") is None
    assert pretended.asked == 0


def test_a_folder_or_a_large_file_of_that_name_is_no_manifest(tmp_path, monkeypatch) -> None:
    (tmp_path / "manifest.json").mkdir()
    assert read_manifest(tmp_path) is None
    monkeypatch.setattr(environment_check, "LARGEST_MANIFEST_BYTES", 10)
    assert read_manifest(write(tmp_path / "source", manifest())) is None


def test_source_that_another_python_cannot_read_is_refused_with_place_and_versions(tmp_path) -> None:
    # Python's own reader judges: the interpreter of this test stands in for an older one.
    folder = write(
        tmp_path / "source", manifest(python="3.99.1", files={"main.py": "", "cell.py": ""}), main="x = 1\n", cell="y = 1\nmatch x\n"
    )
    check = EnvironmentCheck(FactsOfInterpreters(dict(os.environ)), dict(os.environ))
    verdict = check.check("d1", folder, sys.executable)
    assert verdict.refusal.message.startswith(f"This worker's Python {HERE}")
    assert "'cell.py' line 2" in verdict.refusal.message
    assert "written with Python 3.99.1" in verdict.refusal.message
    assert "Python 3.99" in verdict.refusal.fix


def test_a_files_name_is_told_on_one_line(tmp_path) -> None:
    name = "a\x1b[31m\n.py"
    folder = write(tmp_path / "source", manifest(python="3.99.1", files={name: ""}))
    (folder / name).write_text("no Python at all")
    verdict = EnvironmentCheck(FactsOfInterpreters(dict(os.environ)), dict(os.environ)).check("d1", folder, sys.executable)
    assert r"can't read 'a\x1b[31m\n.py' line 1" in verdict.refusal.message


def test_source_that_another_python_can_read_runs_with_a_word_about_it(tmp_path) -> None:
    files = {"main.py": "", "../outside.py": "", "/etc/passwd.py": "", "gone.py": "", "data.bin": ""}
    folder = write(tmp_path / "source", manifest(python="3.99.1", files=files), main="x = 1\n")
    (tmp_path / "outside.py").write_text("no Python at all")
    verdict = EnvironmentCheck(FactsOfInterpreters(dict(os.environ)), dict(os.environ)).check("d1", folder, sys.executable)
    assert verdict.refusal is None
    assert verdict.differences == (f"Python 3.99.1 there, {verdict.facts.python} here",)


def test_of_the_same_minor_version_no_source_is_read(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(environment_check, "answer_of", None)
    folder = write(tmp_path / "source", manifest(python="3.11.0", files={"main.py": ""}), main="no Python at all")
    assert EnvironmentCheck(Pretended(facts()), {}).check("d1", folder, "python").refusal is None


def test_a_program_that_comes_again_is_not_read_again_until_the_interpreter_has_changed(tmp_path, monkeypatch) -> None:
    pretended = Pretended(facts(numpy="1.0"))
    check = EnvironmentCheck(pretended, {})
    folder = write(tmp_path / "source", manifest(packages={"numpy": "2.0"}))
    first = check.check("d1", folder, "python")
    monkeypatch.setattr(environment_check, "read_manifest", None)
    monkeypatch.setattr(environment_check, "compare", None)
    assert check.check("d1", folder, "python") is first
    monkeypatch.undo()
    pretended.facts = facts(numpy="2.0")
    assert check.check("d1", folder, "python").differences == ()


def test_an_interpreter_is_asked_once_and_again_when_a_package_came(tmp_path, monkeypatch) -> None:
    probed = []
    real = interpreter_facts.probe
    monkeypatch.setattr(interpreter_facts, "probe", lambda python, environment: probed.append(python) or real(python, environment))
    (tmp_path / "packages").mkdir()
    interpreters = FactsOfInterpreters({**os.environ, "PYTHONPATH": str(tmp_path / "packages"), "GPULAYER_TOKEN": "secret"})
    known = interpreters.of(sys.executable)
    assert interpreters.of(sys.executable) is known
    assert len(probed) == 1
    assert known.python.startswith(HERE)
    assert "msgspec" in known.packages
    assert "small-one" not in known.packages
    information = tmp_path / "packages" / "Small_One-1.5.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: Small_One\nVersion: 1.5\n")
    assert interpreters.of(sys.executable).packages["small-one"] == "1.5"
    assert len(probed) == 2


def test_of_interpreters_that_nobody_asks_for_any_more_nothing_is_kept(monkeypatch) -> None:
    probed = []
    monkeypatch.setattr(interpreter_facts, "MOST_INTERPRETERS", 3)
    monkeypatch.setattr(interpreter_facts, "probe", lambda python, environment: probed.append(python) or facts())
    interpreters = FactsOfInterpreters({})
    for number in range(9):
        interpreters.of("own")
        interpreters.of(f"environment {number}")
    assert probed.count("own") == 1
    assert len(interpreters._known) == 3


def test_an_interpreter_is_asked_without_what_its_ranks_do_not_get() -> None:
    environment = {**os.environ, "GPULAYER_TOKEN": "secret", "MPLBACKEND": "nbAgg", "MINE": "1"}
    program = "import os; print([name for name in ('GPULAYER_TOKEN', 'MPLBACKEND', 'MINE') if name in os.environ])"
    assert interpreter_facts.run_short(sys.executable, program, environment) == b"['MINE']\n"


def test_an_interpreter_whose_installation_prints_is_understood(tmp_path) -> None:
    (tmp_path / "customs").mkdir()
    (tmp_path / "customs" / "sitecustomize.py").write_text("import atexit\nprint('welcome')\natexit.register(print, '{goodbye')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "customs")}
    folder = write(tmp_path / "source", manifest(python="3.99.1", files={"main.py": ""}), main="no Python at all")
    verdict = EnvironmentCheck(FactsOfInterpreters(environment), environment).check("d1", folder, sys.executable)
    assert verdict.facts.python.startswith(HERE)
    assert "can't read 'main.py' line 1" in verdict.refusal.message


def test_an_interpreter_that_answers_something_else_is_named() -> None:
    with pytest.raises(Unsupported, match="does not answer") as refused:
        FactsOfInterpreters(dict(os.environ)).of("echo")
    assert refused.value.asked == "echo"


@pytest.mark.parametrize("python", ["/nowhere/python", "false"])
def test_an_interpreter_that_does_not_run_is_named(python) -> None:
    with pytest.raises(Unsupported, match="does not run") as refused:
        FactsOfInterpreters(dict(os.environ)).of(python)
    assert refused.value.asked == python


def test_it_finds_what_importlib_finds() -> None:
    found = FactsOfInterpreters(dict(os.environ)).of(sys.executable)
    known: dict[str, str] = {}
    for distribution in metadata.distributions():
        known.setdefault(normalised(distribution.metadata["Name"]), distribution.version)
    assert found.packages == known
    assert found.python == platform.python_version()
    assert found.has_pip
    assert found.has_ensurepip


def test_packages_of_old_installers_are_found_too(tmp_path) -> None:
    (tmp_path / "Old_One-1.2-py3.11.egg-info").mkdir()
    (tmp_path / "plain_file-2.0.egg-info").write_text("Name: plain-file\nVersion: 2.0\n")
    (tmp_path / "developed.egg-info").mkdir()
    (tmp_path / "developed.egg-info" / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: Developed\nVersion: 3.1\n\nVersion: 9\n")
    (tmp_path / "broken.dist-info").mkdir()
    found = FactsOfInterpreters({**os.environ, "PYTHONPATH": str(tmp_path)}).of(sys.executable).packages
    assert {name: found.get(name) for name in ("old-one", "plain-file", "developed", "broken")} == {
        "old-one": "1.2",
        "plain-file": "2.0",
        "developed": "3.1",
        "broken": None,
    }
