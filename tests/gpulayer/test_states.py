from __future__ import annotations

import pytest

from gpulayer.states import ATTEMPT_MOVES, JOB_MOVES, AttemptState, JobState, is_legal


@pytest.mark.parametrize(("moves", "states"), [(JOB_MOVES, JobState), (ATTEMPT_MOVES, AttemptState)])
def test_moves_lead_out_of_every_state_but_the_terminal_ones(moves, states):
    left = {move.leaves for move in moves}
    assert left == {state for state in states if not state.is_terminal}
    assert {move.reaches for move in moves} >= {state for state in states if state.is_terminal}


@pytest.mark.parametrize("moves", [JOB_MOVES, ATTEMPT_MOVES])
def test_every_move_says_when_and_what_guards_it(moves):
    assert all(move.when and move.guard for move in moves)
    assert len({(move.leaves, move.reaches) for move in moves}) == len(moves)


def test_every_terminal_attempt_state_but_success_is_reachable_before_the_process_runs():
    for state in (AttemptState.FAILED, AttemptState.CANCELLED, AttemptState.LOST):
        assert is_legal(AttemptState.ACKNOWLEDGED, state)
    assert not is_legal(AttemptState.ACKNOWLEDGED, AttemptState.SUCCEEDED)


@pytest.mark.parametrize("state", [state for state in JobState if state.is_terminal])
def test_an_ended_job_stays_as_it_ended(state):
    assert not any(is_legal(state, other) for other in JobState)


@pytest.mark.parametrize("state", [state for state in AttemptState if state.is_terminal])
def test_an_ended_attempt_stays_as_it_ended(state):
    assert not any(is_legal(state, other) for other in AttemptState)


def test_attempts_of_jobs_and_of_tasks_are_not_mixed():
    assert is_legal(JobState.QUEUED, JobState.QUEUED)
    assert not is_legal(AttemptState.PLACED, AttemptState.RUNNING)
