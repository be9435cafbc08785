"""When a fault counts: by what became of the attempts that ran when it struck."""

from typing import Any

import pytest
from support.chaos_run import ChaosRun, Hit

KEYS = [("j1", 0, 1), ("j2", 0, 1)]


@pytest.fixture
def run() -> ChaosRun:
    nowhere: Any = None
    return ChaosRun(nowhere, seed=1, seconds=1.0, hits=[Hit("kill agent", KEYS)])


@pytest.mark.parametrize("state", ["lost", "failed"])
def test_one_attempt_that_it_ended_is_enough(run: ChaosRun, state: str) -> None:
    run.judge({KEYS[0]: "succeeded", KEYS[1]: state})
    assert (dict(run.counted), dict(run.missed), run.hits) == ({"kill agent": 1}, {}, [])


def test_a_hit_on_what_ended_well_all_the_same_is_a_miss(run: ChaosRun) -> None:
    run.judge(dict.fromkeys(KEYS, "succeeded"))
    assert (dict(run.counted), dict(run.missed), run.hits) == ({}, {"kill agent": 1}, [])
    assert "kill agent" in run.never_counted


def test_a_hit_on_nothing_is_a_miss(run: ChaosRun) -> None:
    run.hits = [Hit("kill agent", [])]
    run.judge({})
    assert (dict(run.counted), dict(run.missed)) == ({}, {"kill agent": 1})


def test_it_is_not_judged_while_an_attempt_goes_on(run: ChaosRun) -> None:
    run.judge({KEYS[0]: "lost", KEYS[1]: "running"})
    assert (dict(run.counted), dict(run.missed)) == ({}, {})
    assert run.hits == [Hit("kill agent", KEYS)]
