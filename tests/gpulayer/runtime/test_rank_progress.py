"""`gpulayer.progress`: what it takes, what it refuses, and what of it arrives."""

from __future__ import annotations

import pytest
import torch
from support.runtime import rank_argv, start_task

import gpulayer
from gpulayer.errors import InvalidSpec


@pytest.mark.parametrize("value", [1, 0.5, torch.tensor(3), torch.tensor(2.0), True])
def test_numbers_of_all_kinds_are_taken(value):
    gpulayer.progress(value)
    gpulayer.progress(0, value)


@pytest.mark.parametrize("value", ["1", None, -1, float("nan"), float("inf"), [1], torch.ones(2), 1j])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(InvalidSpec, match=r"progress\(done="):
        gpulayer.progress(value)


@pytest.mark.parametrize("text", [3, "x" * 201])
def test_text_is_text_and_not_long(text):
    with pytest.raises(InvalidSpec, match=r"progress\(text="):
        gpulayer.progress(1, 2, text)


def test_only_rank_0_is_heard_and_its_last_word_arrives(keeper, tmp_path):
    source = """
        import gpulayer, os
        for step in range(20_000):
            gpulayer.progress(step, 20_000, text=os.environ["RANK"])
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, script="main.py", devices=2, launcher="direct")
    assert task.result().state == "succeeded", task.events.output
    said = [(rank, data) for rank, kind, data in task.events.records if kind == "progress"]
    assert {rank for rank, _ in said} == {0}
    assert said[-1][1] == {"done": 19_999.0, "total": 20_000.0, "text": "0"}
    assert len(said) < 200


def test_a_word_between_metrics_loses_none(keeper, tmp_path):
    source = """
        import gpulayer
        for step in range(100):
            gpulayer.log(step=step, loss=0.5)
            gpulayer.progress(step)
        raise SystemExit(3)
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    assert task.result().state == "failed"
    assert [data["step"] for _, kind, data in task.events.records if kind == "metrics"] == list(range(100))
    assert [data["done"] for _, kind, data in task.events.records if kind == "progress"][-1] == 99.0
