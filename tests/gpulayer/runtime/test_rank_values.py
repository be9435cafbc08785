"""What a program sends back at its end: rank 0's values as files among the outputs; the job succeeds whatever they are."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from support.runtime import rank_argv, start_task

from gpulayer.plain_data.reading import Reader
from gpulayer.runtime import rank_hooks
from gpulayer.runtime.rank_values import keep_values


def _run(keeper, folder, source, **options):
    task = start_task(keeper, folder, {"main.py": source}, **(options or {"argv": rank_argv()}))
    result = task.result()
    return task, result


def _kept(folder):
    files = {file.name for file in folder.iterdir()}
    index = json.loads((folder / "values.json").read_text())
    reader = Reader(folder, files)
    return {name: reader.read(f"{entry['file']}.json") if "file" in entry else entry["why"] for name, entry in index.items()}


def test_the_names_of_both_ends_are_one():
    from gpulayer.plain_data.fetched import FETCH
    from gpulayer.runtime import rank_environment, rank_records, rank_values

    assert rank_hooks._FETCH == FETCH
    assert rank_hooks._RANK == rank_records.RANK
    assert rank_values._OUTPUT_DIR == rank_environment.OUTPUT_DIR


SOURCE = """
import os, sys, threading
__gpulayer_fetch__ = {"names": ["number", "later", "gone", "function", "big", "wicked"], "most_bytes": 100000}
number = [int(os.environ.get("RANK", 0)), {"a": (1, 2)}]
later = []
threading.Timer(0.2, lambda: later.append("from a thread")).start()
gone = 1
del gone
def function(): pass
big = "x" * 200000
import dataclasses
@dataclasses.dataclass
class Wicked:
    number: int = 1
    def __getattribute__(self, name):
        if name == "number": raise RuntimeError("not for you")
        return object.__getattribute__(self, name)
wicked = Wicked()
sys.exit(0)
"""


def test_values_are_written_when_all_of_the_program_has_ended(keeper, tmp_path):
    task, result = _run(keeper, tmp_path, SOURCE)
    assert result.state == "succeeded", task.events.output
    kept = _kept(task.workspace / "output" / "fetched")
    assert kept == {
        "number": [0, {"a": (1, 2)}],
        "later": ["from a thread"],
        "gone": "it is not bound at the program's end",
        "function": "it is a function, which is no plain data. Functions, classes and modules come from source: define or import it "
        "in a cell without %%gpulayer.",
        "big": "it comes to 0.2 MB, over the limit of 0.1 MB for one value. Keep it in a file among the outputs instead, or raise "
        "GPULAYER_VALUE_LIMIT_MB.",
        "wicked": "it could not be written: RuntimeError: not for you",
    }


def test_rank_0_of_several_speaks(keeper, tmp_path):
    source = "import os\n__gpulayer_fetch__ = {'names': ['rank'], 'most_bytes': 1000}\nrank = os.environ['RANK']\n"
    task, result = _run(keeper, tmp_path, source, script="main.py", devices=2, launcher="direct")
    assert result.state == "succeeded", task.events.output
    assert _kept(task.workspace / "output" / "fetched") == {"rank": "0"}


@pytest.mark.parametrize("end", ["raise SystemExit(3)", "1 / 0"])
def test_a_program_that_fails_sends_nothing_back(end, keeper, tmp_path):
    task, result = _run(keeper, tmp_path, f"__gpulayer_fetch__ = {{'names': ['a'], 'most_bytes': 1000}}\na = 1\n{end}\n")
    assert result.state == "failed"
    assert not (task.workspace / "output" / "fetched").exists()


DIES = """
import dataclasses, os, signal
__gpulayer_fetch__ = {"names": ["first", "deadly"], "most_bytes": 1000}
first = 1
@dataclasses.dataclass
class Deadly:
    number: int = 1
    def __getattribute__(self, name):
        if name == "number": os.kill(os.getpid(), signal.SIGKILL)
        return object.__getattribute__(self, name)
deadly = Deadly()
"""


def test_a_rank_that_dies_while_it_writes_has_failed_and_sent_nothing(keeper, tmp_path):
    task, result = _run(keeper, tmp_path, DIES)
    assert result.state == "failed"
    assert result.failure.signal == 9
    assert not (task.workspace / "output" / "fetched" / "values.json").exists()


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"names": 3}, "could not be kept"),
        ({"most_bytes": 1}, "could not be kept"),
        (None, "could not be kept"),
        ({"names": ["a"]}, "kept"),
    ],
)
def test_what_cannot_be_understood_is_told_and_nothing_else_happens(wanted, says, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPULAYER_OUTPUT_DIR", str(tmp_path))
    keep_values(wanted, {"a": 1})
    assert says in capsys.readouterr().err


def test_a_value_whose_code_would_end_the_program_is_named(tmp_path, monkeypatch):
    class Leaving:
        def __getattribute__(self, name):
            raise SystemExit(7)

    monkeypatch.setenv("GPULAYER_OUTPUT_DIR", str(tmp_path))
    made = dataclasses.make_dataclass("Made", ["a"], bases=(Leaving,))
    keep_values({"names": ["a", "b"], "most_bytes": 1000}, {"a": object.__new__(made), "b": 1})
    assert _kept(tmp_path / "fetched") == {"a": "it could not be written: SystemExit: 7", "b": 1}


def test_an_output_of_the_jobs_own_is_left_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPULAYER_OUTPUT_DIR", str(tmp_path))
    (tmp_path / "fetched").mkdir()
    (tmp_path / "fetched" / "0.json").write_text("mine")
    keep_values({"names": ["a"], "most_bytes": 1000}, {"a": np.zeros(3)})
    assert "has an output 'fetched' of its own" in capsys.readouterr().err
    assert [file.read_text() for file in (tmp_path / "fetched").iterdir()] == ["mine"]


def test_a_program_run_by_hand_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv("GPULAYER_OUTPUT_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    keep_values({"names": ["a"], "most_bytes": 1000}, {"a": 1})
    assert list(tmp_path.iterdir()) == []
