from __future__ import annotations

import pytest

from gpulayer.client.script_job import script_job
from gpulayer.errors import InvalidSpec
from gpulayer.spec import CommandJob, DistributedJob


def test_one_rank_is_one_process_without_a_launcher():
    spec = script_job("sub/train.py", ("--lr", "0.1"), name="mine")
    assert isinstance(spec, CommandJob)
    assert spec.argv == ("python", "-m", "gpulayer.runtime.rank_main", "sub/train.py", "--lr", "0.1")
    assert spec.name == "mine"
    assert [script_job("sub/train.py", **options).name for options in ({}, {"name": None})] == ["train", "train"]


@pytest.mark.parametrize("fields", [{"nodes": 2}, {"devices": 2}, {"launcher": "torchrun"}])
def test_more_ranks_or_a_launcher_that_is_asked_for_is_a_distributed_job(fields):
    spec = script_job("train.py", ("a",), **fields)
    assert isinstance(spec, DistributedJob)
    assert (spec.script, spec.args, spec.launcher) == ("train.py", ("a",), "torchrun")


@pytest.mark.parametrize("fields", [{"devices": 0.5}, {"devices": 0}, {"devices": 1.0}, {"nodes": 0}])
def test_counts_that_are_none_are_refused(fields):
    with pytest.raises(InvalidSpec):
        script_job("train.py", **fields)
