from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpulayer.runtime.warm_start import command_start

PYTHON = sys.executable


def plan(argv, env=None, *, mode="auto", parked_python=PYTHON, parked_env=None):
    parked = SimpleNamespace(python=parked_python, environment=parked_env or {})
    return command_start(argv, env or {}, python=PYTHON, parked=parked, mode=mode)


@pytest.mark.parametrize(
    ("argv", "form"),
    [
        (["python", "-c", "pass", "-O"], "-c"),
        (["python", "-m", "module", "a"], "-m"),
        (["python", "script.py"], "script"),
        (["python", "folder"], "script"),
        (["python", "-m", "gpulayer.runtime.rank_main", "main.py", "a"], "rank"),
        ([PYTHON, "-m", "gpulayer.runtime.rank_main", "main.py"], "-m"),
        ([PYTHON, "script.py"], "script"),
    ],
)
def test_forms_that_a_parked_interpreter_can_become(argv, form):
    start = plan(argv)
    assert (start.form, start.cold_reason, start.is_python, start.executable) == (form, None, True, PYTHON)


@pytest.mark.parametrize(
    "argv",
    [
        ["python"],
        ["python", "-"],
        ["python", "-c"],
        ["python", "-mmodule"],
        ["python", "-u", "script.py"],
        ["python", "compiled.pyc"],
        ["python", "-c", "'\udcff'"],
        ["python", "-m", "gpulayer.runtime.rank_main", "--launcher=direct", "main.py"],
    ],
)
def test_forms_that_start_as_a_new_program(argv):
    start = plan(argv)
    if argv[-1] == "main.py":
        assert start.form == "-m"  # a module as any other
    else:
        assert (start.form, start.argv[0]) == (None, PYTHON)
        assert "interpreter options" in start.cold_reason


def test_the_rank_entry_starts_without_an_option_that_its_script_would_see():
    start = plan(["python", "-m", "gpulayer.runtime.rank_main", "main.py", "a"], mode="cold")
    assert start.argv[:2] == [PYTHON, "-c"]
    assert start.argv[3:] == ["main.py", "a"]
    assert start.cold_reason == "GPULAYER_START=cold"


def test_another_python_of_the_same_environment_and_one_of_another(tmp_path):
    beside = Path(PYTHON).parent
    start = plan(["python3", "-c", "pass"], {"PATH": str(beside)})
    assert (start.form, start.executable) == ("-c", str(beside / "python3"))
    other = tmp_path / "python3"
    other.symlink_to(PYTHON)
    start = plan(["python3", "-c", "pass"], {"PATH": str(tmp_path)})
    assert (start.argv[0], start.form) == ("python3", None)
    assert "another interpreter" in start.cold_reason
    assert plan(["sh", "-c", "true"]).cold_reason is None


@pytest.mark.parametrize(
    "name", ["PYTHONHASHSEED", "PYTHONPATH", "LD_PRELOAD", "LC_ALL", "LANG", "TZ", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"]
)
def test_what_is_read_once_at_a_start_must_be_the_same(name):
    argv = ["python", "-c", "pass"]
    assert plan(argv, {name: "1"}).cold_reason == f"its environment has another {name}"
    assert plan(argv, parked_env={name: "1"}).cold_reason == f"its environment has another {name}"
    assert plan(argv, {name: "1", "A": "2"}, parked_env={name: "1"}).cold_reason is None


def test_unbuffered_output_and_thread_counts_make_no_difference():
    env = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "PATH": os.defpath}
    assert plan(["python", "-c", "pass"], env).form == "-c"


def test_a_keeper_under_another_interpreter_parks_for_nobody():
    assert plan(["python", "-c", "pass"], parked_python="/elsewhere/python").cold_reason == "the parked interpreter is another one"
