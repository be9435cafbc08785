from __future__ import annotations

import json

import msgspec
import pytest
from support.client import job_status

from gpulayer.client.failures import job_failed
from gpulayer.protocol import Failure, Frame, RankError, RankOutcome, TaskStatus, ThreadStack
from gpulayer.spec import CommandJob
from gpulayer.states import AttemptState, JobState


def failed(**fields):
    return job_failed(job_status(JobState.FAILED, failure=Failure(**{"reason": "rank", "message": "rank 3 failed", **fields})))


def test_the_guilty_rank_its_place_its_exit_and_its_exception_stand_in_lines():
    trace = "Traceback (most recent call last):\n  ...\nValueError: odd\nsecond"
    error = failed(
        rank=3, node=1, worker="w2", device="cpu:1", exit_code=1, error=RankError(type="ValueError", message="odd\nsecond", traceback=trace)
    )
    assert error.two_lines().splitlines() == [
        "Job j1 'train' failed: rank 3 (node 1, worker w2, device cpu:1) exited with code 1.",
        "ValueError: odd",
        "Its output: gpulayer logs j1 --rank 3",
    ]
    assert error.details["traceback"] == trace
    assert error.details["failure"]["rank"] == 3
    assert any(trace in note for note in error.__notes__)


@pytest.mark.parametrize(
    ("fields", "words", "lines"),
    [
        ({"rank": 0, "signal": 9, "message": "killed by the out-of-memory killer"}, ["SIGKILL (signal 9)", "out-of-memory killer"], 3),
        ({"rank": 0, "signal": 99}, ["signal 99"], 3),
        ({"rank": 0, "exit_code": 2, "last_lines": ("epoch 3", "")}, ["code 2"], 2),
        (
            {"reason": "lost", "message": "'w' was not heard for 15 s.", "worker": "w", "node": 0},
            ["not heard for 15 s", "worker w"],
            2,
        ),
        ({"reason": "start", "message": "the bundle is damaged"}, ["the bundle is damaged"], 2),
        ({"reason": "launcher", "message": "it failed", "exit_code": 1}, ["the launcher exited with code 1", "it failed"], 3),
    ],
)
def test_every_way_to_fail_is_named(fields, words, lines):
    text = failed(**fields).two_lines()
    assert len(text.splitlines()) == lines
    assert "epoch 3" not in text
    for word in words:
        assert word in text


def test_a_timeout_says_how_long_and_a_cancelled_job_that_it_was_cancelled():
    spec = CommandJob(argv=("true",), timeout_seconds=1.5)
    timed_out = job_status(JobState.FAILED, spec=spec, failure=Failure(reason="timeout", message="timeout", signal=15, rank=0))
    assert "ran out of time (1.5 s)" in job_failed(timed_out).message
    assert job_failed(job_status(JobState.CANCELLED)).message.endswith("was cancelled.")


def test_how_the_other_ranks_ended_is_one_line():
    outcomes = [{"collateral": True}, {"collateral": True, "signal": 9}, {"exit_code": 3}, {"exit_code": 1}, {"returned": True}]
    ranks = [RankOutcome(rank=rank, local_rank=rank, **fields) for rank, fields in enumerate(outcomes)]
    tasks = tuple(
        TaskStatus(node=node, state=AttemptState.FAILED, attempt=1, worker_id="w", worker="w", host="h", ranks=tuple(share))
        for node, share in enumerate((ranks[:2], ranks[2:]))
    )
    failure = Failure(reason="rank", message="", rank=3, exit_code=1)
    told = job_failed(job_status(JobState.FAILED, failure=failure, tasks=tasks)).two_lines().splitlines()
    assert told[1] == "The other ranks were stopped: 0, 1; had ended: 4; failed as well: 2."


def test_where_none_is_guilty_there_are_no_others():
    task = TaskStatus(
        node=0,
        state=AttemptState.FAILED,
        attempt=1,
        worker_id="w",
        worker="w",
        host="h",
        ranks=(RankOutcome(rank=0, local_rank=0, collateral=True),),
    )
    failure = Failure(reason="timeout", message="timeout")
    assert "Stopped ranks: 0." in job_failed(job_status(JobState.FAILED, failure=failure, tasks=(task,))).two_lines()


FRAMES = (
    Frame(file="/w/source/main.py", line=12, function="f"),
    Frame(file="/v/lib/python3.11/site-packages/torch/nn/modules/linear.py", line=125, function="forward"),
)


def test_what_was_raised_is_told_with_the_innermost_line_of_the_users():
    error = failed(rank=3, exit_code=1, error=RankError(type="RuntimeError", message="shapes", traceback="t", frames=FRAMES))
    assert error.two_lines().splitlines()[1] == "RuntimeError: shapes (main.py:12 in f)"
    failure = Failure(reason="rank", message="", rank=3, exit_code=1, error=RankError(type="E", message="", traceback="t", frames=FRAMES))
    elsewhere = job_failed(job_status(JobState.FAILED, failure=failure), place=lambda frame: f"line {frame.line} of mine")
    assert elsewhere.two_lines().splitlines()[1] == "E (line 12 of mine in f)"


def test_details_carry_everything_as_plain_data():
    error = RankError(type="E", message="m", traceback="t", frames=FRAMES)
    ranks = (
        RankOutcome(rank=0, local_rank=0, collateral=True, signal=9, stacks=(ThreadStack(is_main=True, frames=FRAMES),)),
        RankOutcome(rank=1, local_rank=1, exit_code=1, error=error),
    )
    task = TaskStatus(node=0, state=AttemptState.FAILED, attempt=1, worker_id="w", worker="gpu-box", host="h", ranks=ranks)
    failure = Failure(reason="rank", message="", rank=1, exit_code=1, error=error)
    details = json.loads(json.dumps(job_failed(job_status(JobState.FAILED, failure=failure, tasks=(task,))).details))
    assert msgspec.convert(details["failure"], Failure) == failure
    assert [(rank.pop("node"), rank.pop("worker")) for rank in details["ranks"]] == [(0, "gpu-box")] * 2
    assert msgspec.convert(details["ranks"], tuple[RankOutcome, ...]) == ranks


@pytest.mark.parametrize(
    ("kind", "message", "told"),
    [
        ("ModuleNotFoundError", "No module named 'einops'", True),
        ("ModuleNotFoundError", "No module named 'mine.part'", False),  # `mine` is there
        ("ValueError", "No module named 'einops'", False),
    ],
)
def test_a_missing_package_is_told_with_what_brings_it(kind, message, told):
    error = failed(rank=0, exit_code=1, error=RankError(type=kind, message=message, traceback="t"))
    assert ("If the worker lacks a package 'einops', --requirements FILE brings it" in error.message) is told


def test_what_was_printed_last_is_a_note_where_nothing_was_raised():
    assert failed(rank=2, exit_code=2, last_lines=("epoch 3", "usage: x")).__notes__ == ["The last lines of rank 2:\nepoch 3\nusage: x"]
    raised = failed(rank=2, exit_code=1, last_lines=("epoch 3",), error=RankError(type="E", message="", traceback="t"))
    assert not any("epoch" in note for note in raised.__notes__)
    assert not hasattr(failed(rank=2, exit_code=2, last_lines=("",)), "__notes__")


def test_a_notebook_is_pointed_to_its_magic(monkeypatch):
    monkeypatch.setattr("IPython.get_ipython", lambda: object())
    assert failed(rank=1, exit_code=1).two_lines().endswith("\nIts output: %gpulayer logs j1 --rank 1")


def test_of_a_crash_in_native_code_the_scripts_line_is_told():
    lines = ("Current thread 0x1 (most recent call first):", '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at')
    own = ('  File "/w/workspaces/a/b/source/seg.py", line 3 in touch', '  File "/w/workspaces/a/b/source/seg.py", line 5 in <module>')
    text = failed(rank=1, signal=11, message="Rank 1 was ended by SIGSEGV", last_lines=lines + own).two_lines()
    assert "Rank 1 was ended by SIGSEGV (seg.py:3 in touch)" in text.splitlines()
