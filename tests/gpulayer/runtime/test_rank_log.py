"""`gpulayer.log`: what it takes, what it refuses, and what of it arrives."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from fractions import Fraction

import numpy as np
import pytest
import torch
from support.runtime import rank_argv, start_task

import gpulayer
from gpulayer.errors import InvalidSpec
from gpulayer.protocol import LONGEST_METRIC_NAME, MOST_VALUES_OF_A_POINT, RESERVED_METRIC_NAMES
from gpulayer.runtime import rank_log

DEVICE = """from gpulayer.runtime import rank_log
        as_it_is = rank_log._plain
        rank_log._plain = lambda name, value: as_it_is(name, value) if isinstance(value, float) else rank_log._OnDevice(value)"""
"""Has every tensor taken for one on a device, which the machine may not have."""


class Records:
    """Stands for the records of this process."""

    def __init__(self):
        self.added = []

    def add(self, kind, data):
        assert kind == "metrics"
        self.added.append(data)

    def flush(self):
        pass


@pytest.fixture
def records(monkeypatch):
    made = Records()
    monkeypatch.setattr(rank_log, "records_of_process", lambda: made)
    monkeypatch.setattr(rank_log, "_records", None)
    return made


def test_its_limits_are_those_of_the_protocol():
    limits = (rank_log._LONGEST_NAME, rank_log._MOST_VALUES, rank_log._RESERVED)
    assert limits == (LONGEST_METRIC_NAME, MOST_VALUES_OF_A_POINT, RESERVED_METRIC_NAMES)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (0.5, 0.5),
        (3, 3.0),
        (True, 1.0),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), "nan"),
        (np.longdouble(0.5), 0.5),
        (np.int64(7), 7.0),
        (np.bool_(True), 1.0),
        (torch.tensor(0.5, requires_grad=True), 0.5),
        (torch.tensor(3), 3.0),
        (torch.tensor(True), 1.0),
        (torch.tensor(math.inf, dtype=torch.bfloat16), "inf"),
    ],
)
def test_numbers_of_every_kind_become_numbers(records, value, stored):
    gpulayer.log(step=np.int32(4), loss=value)
    assert records.added == [{"step": 4, "values": {"loss": stored}}]
    assert type(records.added[0]["step"]) is int


@pytest.mark.parametrize("is_in_job", [True, False])
@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"loss": "0.5"}, "'loss' is no number.*builtins.str"),
        ({"good": 1.0, "bad": None}, "'bad' is no number.*NoneType"),
        ({"loss": [0.5]}, "'loss' is no number.*list"),
        ({"loss": 1j}, "'loss' is no number.*complex"),
        ({"loss": Fraction(1, 2)}, "'loss' is no number.*Fraction"),
        ({"loss": 10**400}, "'loss' is no number.*64-bit"),
        ({"loss": np.zeros(())}, "'loss' is no number.*ndarray"),
        ({"loss": np.datetime64("2026-01-01")}, "'loss' is no number"),
        ({"loss": torch.zeros(2, 3)}, "'loss' is no number.*2×3 on cpu.*mean"),
        ({"loss": torch.zeros(1)}, "'loss' is no number.*with 1 on cpu"),
        ({"loss": torch.zeros((), dtype=torch.complex64)}, "'loss' is no number"),
        ({"loss": torch.zeros((), device="meta")}, "'loss' is no number.*meta"),
        ({"rank": 1.0}, "named 'rank'"),
        ({"x" * 101: 1.0}, "1 to 100 characters"),
        ({"": 1.0}, "1 to 100 characters"),
        ({str(number): 1.0 for number in range(501)}, "too many metrics"),
        ({"step": 1.5}, "integer"),
        ({"step": 2**63}, "64-bit"),
        ({"step": "1"}, "integer"),
    ],
)
def test_what_is_no_number_is_named(records, monkeypatch, metrics, said, is_in_job):
    if not is_in_job:
        monkeypatch.setattr(rank_log, "records_of_process", lambda: None)
    with pytest.raises(InvalidSpec, match=said):
        gpulayer.log(**metrics)
    assert records.added == []


def test_outside_a_job_nothing_is_kept_and_nothing_is_loaded_for_it():
    code = (
        "import threading, sys, gpulayer; gpulayer.log(step=1, loss=0.5); gpulayer.log();"
        "assert threading.active_count() == 1;"
        "assert not {'torch', 'numpy', 'msgspec', 'sqlalchemy', 'httpx'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_what_a_rank_logs_arrives_complete_and_in_order(keeper, tmp_path):
    source = """
        import gpulayer
        for step in range(3000):
            gpulayer.log(step=step, loss=step / 7, **{"val/acc": step % 2 == 0})
        gpulayer.log(loss=float("nan"))
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    assert task.result().state == "succeeded", task.events.output
    expected = [{"step": step, "values": {"loss": step / 7, "val/acc": float(step % 2 == 0)}} for step in range(3000)]
    assert [data for _, _, data in task.events.records] == [*expected, {"step": None, "values": {"loss": "nan"}}]


def test_what_lies_on_a_device_is_what_it_was_when_it_was_logged_and_nothing_overtakes_it(keeper, tmp_path):
    source = f"""
        import gpulayer, torch
        {DEVICE}
        loss = torch.zeros(())
        for step in range(300):
            loss += 1
            gpulayer.log(step=step, loss=loss, lr=0.1)
            gpulayer.log(step=step, between=0.5)
        loss += 1000
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    assert task.result().state == "succeeded", task.events.output
    said = [data for _, _, data in task.events.records]
    assert [data["values"] for data in said[::2]] == [{"loss": step + 1.0, "lr": 0.1} for step in range(300)]
    assert [data["step"] for data in said] == [step for step in range(300) for _ in range(2)]
    times = [data["at"] for data in said if "at" in data]
    assert times == sorted(times)


def test_a_device_that_fails_costs_its_values_only_and_is_said_once(keeper, tmp_path):
    source = f"""
        import gpulayer, torch
        {DEVICE}
        def fail(self):
            raise RuntimeError("CUDA error: device-side assert triggered")
        rank_log._OnDevice.read = fail
        for step in range(3):
            gpulayer.log(step=step, loss=torch.zeros(()), lr=0.1)
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    assert task.result().state == "succeeded", task.events.output
    assert [data["values"] for _, _, data in task.events.records] == [{"lr": 0.1}] * 3
    assert task.events.output[0, "stderr"].count(b"could not be read") == 1


def test_a_device_that_hangs_does_not_keep_the_rank_from_failing(keeper, tmp_path):
    source = f"""
        import gpulayer, threading, torch
        {DEVICE}
        rank_log._END_SECONDS = 0.2
        rank_log._OnDevice.read = lambda self: threading.Event().wait()
        gpulayer.log(loss=torch.zeros(()))
        raise SystemExit(3)
        """
    began = time.monotonic()
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    result = task.result()
    assert result.state == "failed"
    assert [rank.exit_code for rank in result.ranks] == [3]
    assert time.monotonic() - began < 60


def test_a_forked_process_speaks_for_itself_and_says_nothing_twice(keeper, tmp_path):
    source = f"""
        import gpulayer, os, torch
        {DEVICE}
        gpulayer.log(step=0, loss=torch.zeros(()))
        pid = os.fork()
        gpulayer.log(step=2 if pid else 1, loss=torch.ones(()))
        if pid == 0:
            raise SystemExit(0)
        assert os.waitpid(pid, 0)[1] == 0
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    assert task.result().state == "succeeded", task.events.output
    assert sorted(data["step"] for _, _, data in task.events.records) == [0, 1, 2]


@pytest.mark.gpu
def test_a_tensor_on_a_gpu_is_read_right_from_any_stream(records):
    stream = torch.cuda.Stream()
    value = torch.zeros((), device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for step in range(200):
            torch.cuda._sleep(1_000_000)
            value += 1
            gpulayer.log(step=step, loss=value)
    torch.cuda.synchronize()
    with rank_log._later._changed:
        assert rank_log._later._changed.wait_for(lambda: not rank_log._later._waiting, 30)
    assert [data["values"]["loss"] for data in records.added] == [step + 1.0 for step in range(200)]
