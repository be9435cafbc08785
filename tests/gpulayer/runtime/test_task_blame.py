from __future__ import annotations

import pytest

from gpulayer.runtime.rank_channel import ACK_SECONDS
from gpulayer.runtime.task_blame import ANY_END_SECONDS, SILENT_END_SECONDS, Blame
from gpulayer.runtime.task_processes import ProcessExit
from gpulayer.runtime.task_ranks import LocalRanks
from gpulayer.runtime.task_stop import STACKS_SECONDS


@pytest.fixture
def ranks():
    ranks = LocalRanks(0, 2)
    for rank in ranks:
        rank.pid = 100 + rank.rank
    return ranks


def test_a_complaint_is_believed_when_patience_has_run_out(ranks):
    blame = Blame(ranks, is_alone=False)
    first, second = ranks
    assert not blame.note(first)
    first.failed = second.hung_up = True
    assert blame.note(first)
    assert not blame.note(first)
    assert blame.is_open
    waited = []
    while blame.choose() is None:
        waited.append(blame.patience_seconds)
        blame.lose_patience()
    assert blame.choose() is first
    assert waited == [0.2, 0.5]
    assert sum(waited) < 1.0  # for which a rank waits to be answered


def test_a_rank_that_ends_without_a_word_is_guilty_and_the_one_that_complained_is_not(ranks):
    blame = Blame(ranks, is_alone=False)
    first, second = ranks
    first.failed = True
    blame.note(first)
    second.exit = ProcessExit(pid=101, exit_code=None, signal=9)
    blame.note(second)
    assert blame.choose() is second
    assert (first.collateral, second.collateral) == (True, False)


def test_a_rank_alone_is_believed_at_once():
    ranks = LocalRanks(0, 1)
    blame = Blame(ranks, is_alone=True)
    (rank,) = ranks
    assert blame.choose() is None
    rank.failed = True
    blame.note(rank)
    assert blame.choose() is rank


def test_a_rank_that_has_failed_stays_until_the_others_have_told_their_stacks():
    assert ANY_END_SECONDS + SILENT_END_SECONDS + STACKS_SECONDS < ACK_SECONDS
