from __future__ import annotations

import pytest

from gpulayer.runtime.task_processes import ProcessExit
from gpulayer.runtime.task_ranks import LocalRanks, Patience


def ended(pid: int, exit_code: int | None = 0, signal: int | None = None) -> ProcessExit:
    return ProcessExit(pid=pid, exit_code=exit_code, signal=signal)


@pytest.fixture
def ranks():
    ranks = LocalRanks(2, 2)
    for rank in ranks:
        rank.pid = 100 + rank.rank
    return ranks


def test_ranks_are_numbered_over_all_nodes(ranks):
    assert [(rank.rank, rank.local_rank) for rank in ranks] == [(2, 0), (3, 1)]
    assert ranks.all_connected
    assert len(ranks.alive) == 2


def test_a_rank_that_returned_has_succeeded_however_its_process_ended(ranks):
    first, second = ranks
    first.returned, first.exit = True, ended(102, None, 6)
    second.exit = ended(103)
    assert ranks.all_succeeded
    assert first.outcome().returned
    assert first.outcome().signal == 6


def test_the_first_to_say_so_is_guilty_once_no_other_may_have_died(ranks):
    first, second = ranks
    second.failed = first.failed = True
    assert ranks.choose_guilty([second, first], Patience.FOR_ANY_END) is None
    assert ranks.choose_guilty([second, first], Patience.FOR_SILENT_END) is second
    assert ranks.choose_guilty([second, first], Patience.NONE) is second


def test_a_complaint_waits_for_the_end_of_a_rank_that_hung_up(ranks):
    complaining, silent = ranks
    complaining.failed = silent.hung_up = True
    assert ranks.choose_guilty([complaining], Patience.FOR_SILENT_END) is None
    assert ranks.choose_guilty([complaining], Patience.NONE) is complaining


@pytest.mark.parametrize("patience", Patience)
def test_a_rank_that_ended_without_a_word_is_guilty_at_once(ranks, patience):
    complaining, silent = ranks
    complaining.failed = True
    silent.exit = ended(103, None, 9)
    assert ranks.choose_guilty([complaining, silent], patience) is silent


def test_a_rank_that_hung_up_and_ended_well_is_not_guilty(ranks):
    complaining, silent = ranks
    complaining.failed = silent.hung_up = True
    silent.exit = ended(103, 0)
    assert ranks.choose_guilty([complaining], Patience.FOR_SILENT_END) is complaining
