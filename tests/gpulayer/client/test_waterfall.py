from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.client import job_status

from gpulayer.client.waterfall import Span, summarise_ranks, waterfall_of
from gpulayer.protocol import MARKS, RankOutcome, TaskStatus
from gpulayer.spec import CommandJob, DistributedJob
from gpulayer.states import AttemptState, JobState

CREATED = 100.0
USUAL = [mark for mark in MARKS if mark != "equipped"]
ALL = dict(zip(USUAL, (0.1, 0.2, 0.4, 1.0, 1.2, 2.0, 5.0, 5.5, 5.6), strict=True))


def outcome(rank=0, marks=ALL, **fields):
    return RankOutcome(rank=rank, local_rank=rank, marks=dict(marks), **fields)


def task(*ranks, node=0, placed_at=CREATED + 1, attempt=1, state=AttemptState.SUCCEEDED):
    return TaskStatus(node=node, state=state, attempt=attempt, worker_id="w", worker="w", host="h", placed_at=placed_at, ranks=ranks)


def job(*tasks, state=JobState.SUCCEEDED, started_at=CREATED + 1.3, ended_at=CREATED + 7, **fields):
    spec = fields.pop("spec", DistributedJob(script="train.py", nodes=max(len(tasks), 1)))
    return job_status(state, created_at=CREATED, started_at=started_at, ended_at=ended_at, tasks=tasks, spec=spec, **fields)


def told(spans):
    return [(span.rank, span.step, round(span.start, 6), round(span.end, 6)) for span in spans]


def steps(marks):
    return [span.step for span in waterfall_of(job(task(outcome(marks=marks)))) if span.rank is not None]


def some(*names):
    return {name: ALL[name] for name in names}


def test_the_environment_of_a_jobs_requirements_is_a_step_of_its_own():
    assert steps({"fetched": 0.1, "equipped": 40.0, "launched": 40.1, "ended": 41.0}) == ["fetch", "environment", "launch", "process"]
    assert steps({"equipped": 40.0, "entered": 41.0}) == ["fetch + environment", "launch + start"]


def test_every_second_of_a_training_has_its_step():
    assert told(waterfall_of(job(task(outcome())))) == [
        (None, "queued", 0.0, 1.0),
        (None, "assigned", 1.0, 1.3),
        (None, "running", 1.3, 6.6),
        (None, "finish", 6.6, 7.0),
        (0, "fetch", 1.0, 1.1),
        (0, "launch", 1.1, 1.2),
        (0, "start", 1.2, 1.4),
        (0, "imports", 1.4, 2.0),
        (0, "rendezvous", 2.0, 2.2),
        (0, "before the first step", 2.2, 3.0),
        (0, "steps", 3.0, 6.0),
        (0, "after the last step", 6.0, 6.5),
        (0, "teardown", 6.5, 6.6),
    ]


@pytest.mark.parametrize(
    ("marks", "named"),
    [
        (("fetched", "launched", "ended"), ["fetch", "launch", "process"]),  # a command that is no Python
        (("fetched", "launched", "entered", "returned", "ended"), ["fetch", "launch", "start", "script", "teardown"]),
        (("fetched", "launched", "entered", "imported", "met", "ended"), ["fetch", "launch", "start", "imports", "rendezvous", "script"]),
        (("fetched", "entered", "returned"), ["fetch", "launch + start", "script"]),
        (("met", "ended"), ["fetch + launch + start + imports + rendezvous", "script"]),
        (
            ("entered", "first_step", "last_step", "ended"),
            ["fetch + launch + start", "before the first step", "steps", "after the last step"],
        ),
        (("entered", "first_step", "returned"), ["fetch + launch + start", "before the first step", "script"]),
        (("ended",), ["process"]),
        ((), []),
    ],
)
def test_what_is_not_known_is_not_told_apart(marks, named):
    assert steps(some(*marks)) == named


def test_a_mark_that_nobody_knows_here_is_left_out():
    assert steps({"fetched": 0.1, "blessed": 0.2}) == ["fetch"]


def test_a_job_that_waits_or_was_cancelled_before_its_start_has_what_there_is():
    waiting = job(state=JobState.QUEUED, started_at=None, ended_at=None)
    assert told(waterfall_of(waiting, CREATED + 4)) == [(None, "queued", 0.0, 4.0)]
    assert [span.so_far for span in waterfall_of(waiting, CREATED + 4)] == [True]
    assert told(waterfall_of(waiting)) == [(None, "queued", 0.0, 0.0)]
    cancelled = job(state=JobState.CANCELLED, started_at=None)
    assert told(waterfall_of(cancelled)) == [(None, "queued", 0.0, 7.0)]
    placed = job(task(state=AttemptState.CANCELLED), state=JobState.CANCELLED, started_at=None)
    assert told(waterfall_of(placed)) == [(None, "queued", 0.0, 1.0), (None, "assigned", 1.0, 7.0)]
    assert not any(span.so_far for span in waterfall_of(placed))


def test_a_running_job_is_drawn_to_this_moment_and_a_lost_one_to_its_end():
    running = job(task(state=AttemptState.RUNNING), state=JobState.RUNNING, ended_at=None)
    spans = waterfall_of(running, CREATED + 9)
    assert told(spans)[-1] == (None, "running", 1.3, 9.0)
    assert [span.so_far for span in spans] == [False, False, True]
    assert told(waterfall_of(running))[-1] == (None, "running", 1.3, 1.3)
    lost = job(task(state=AttemptState.LOST), state=JobState.FAILED)
    assert told(waterfall_of(lost))[-1] == (None, "running", 1.3, 7.0)


def test_the_job_runs_until_its_last_rank_has_ended_where_that_is_known_of_all():
    slow = {**ALL, "ended": 5.9}
    both = waterfall_of(job(task(outcome(0)), task(outcome(1, slow), node=1, placed_at=CREATED + 1)))
    assert [(span.step, round(span.end, 6)) for span in both if span.rank is None] == [
        ("queued", 1.0),
        ("assigned", 1.3),
        ("running", 6.9),
        ("finish", 7.0),
    ]
    half = waterfall_of(job(task(outcome(0)), task(node=1, state=AttemptState.LOST)))
    assert [span.step for span in half if span.rank is None] == ["queued", "assigned", "running"]
    blind = waterfall_of(job(task(outcome(0), outcome(1, some("fetched")))))
    assert [span.step for span in blind if span.rank is None] == ["queued", "assigned", "running"]


def test_ranks_come_in_the_order_of_nodes_and_ranks_with_their_place():
    spans = waterfall_of(job(task(outcome(3), outcome(2), node=1), task(outcome(1), outcome(0))))
    assert list(dict.fromkeys((span.node, span.rank) for span in spans)) == [(None, None), (0, 0), (0, 1), (1, 2), (1, 3)]


def test_a_job_that_was_tried_before_says_so():
    again = job(task(outcome(), attempt=2, placed_at=CREATED + 1), attempt=2)
    assert [span.step for span in waterfall_of(again)][:2] == ["earlier attempts, queued", "assigned"]
    # Its first try has ended, the second is not placed: the ranks are the first one's.
    between = job(task(outcome()), state=JobState.QUEUED, attempt=2, started_at=None, ended_at=None)
    spans = waterfall_of(between, CREATED + 9)
    assert told(spans[:1]) == [(None, "earlier attempts, queued", 0.0, 9.0)]
    assert {span.attempt for span in spans[1:]} == {1}


def test_a_control_plane_that_does_not_say_when_it_placed_leaves_the_ranks_out():
    spans = waterfall_of(job(task(outcome(), placed_at=None)))
    assert told(spans) == [(None, "queued", 0.0, 1.3), (None, "running", 1.3, 7.0)]


def test_clocks_that_disagree_turn_no_span_round():
    early = job(task(outcome(), placed_at=CREATED - 5), started_at=CREATED - 4, ended_at=CREATED - 1)
    assert {(span.start, span.end) for span in waterfall_of(early)} == {(0.0, 0.0)}
    shuffled = {**ALL, "entered": 3.0, "imported": 0.5}
    assert told(waterfall_of(job(task(outcome(marks=shuffled)))))[6:8] == [(0, "start", 1.2, 4.0), (0, "imports", 4.0, 4.0)]


times = st.floats(-20, 50)


@st.composite
def statuses(draw):
    tasks = []
    for node in range(draw(st.integers(0, 3))):
        marks = st.dictionaries(st.sampled_from(MARKS), times)
        ranks = [outcome(2 * node + local, draw(marks)) for local in range(draw(st.integers(0, 2)))]
        tasks.append(task(*ranks, node=node, placed_at=draw(st.none() | times.map(CREATED.__add__)), attempt=1))
    moments = st.none() | times.map(CREATED.__add__)
    return job(*tasks, started_at=draw(moments), ended_at=draw(moments), attempt=draw(st.integers(1, 2)))


def by_owner(spans: tuple[Span, ...]) -> list[list[Span]]:
    return [list(group) for _, group in itertools.groupby(spans, key=lambda span: (span.node, span.rank))]


@given(statuses(), st.none() | times.map(CREATED.__add__))
def test_whatever_the_record_says_spans_adjoin_and_the_jobs_cover_it_whole(status, now):
    spans = waterfall_of(status, now)
    of_job, *of_ranks = by_owner(spans)
    assert (of_job[0].rank, of_job[0].start) == (None, 0.0)
    if status.ended_at is not None:
        assert of_job[-1].end == max(0.0, status.ended_at - CREATED)
    for group in (of_job, *of_ranks):
        assert all(span.seconds >= 0 for span in group)
        assert all(before.end == after.start for before, after in itertools.pairwise(group))
        assert 0.0 <= group[0].start <= group[-1].end <= of_job[-1].end
    assert len(of_ranks) == len({(group[0].node, group[0].rank) for group in of_ranks})


@given(st.lists(st.floats(0.001, 10), min_size=len(MARKS) + 3, max_size=len(MARKS) + 3), st.integers(1, 4))
def test_with_all_marks_the_time_from_creation_to_end_is_told_without_a_gap(seconds, ranks):
    queued, delivered, stored, *taken = seconds
    marks = dict(zip(MARKS, itertools.accumulate(taken), strict=True))
    outcomes = [outcome(rank, marks) for rank in range(ranks)]
    placed_at = CREATED + queued
    ended_at = placed_at + delivered + marks["ended"] + stored
    status = job(task(*outcomes, placed_at=placed_at), started_at=placed_at + marks["launched"], ended_at=ended_at)
    of_job, *of_ranks = by_owner(waterfall_of(status))
    assert [span.step for span in of_job] == ["queued", "assigned", "running", "finish"]
    for group in of_ranks:
        assert [span.mark for span in group] == list(MARKS)
        assert group[0].start == of_job[0].end
        assert group[-1].end == of_job[2].end
        assert [span.seconds for span in group] == pytest.approx(taken)
    assert of_job[-1].end == ended_at - CREATED


def test_many_ranks_are_summed_up_step_by_step_in_the_order_of_the_marks():
    ranks = [outcome(rank, {"fetched": 0.1, "entered": 0.2 + rank / 10, **({} if rank == 4 else {"ended": 4.0})}) for rank in range(5)]
    fetch, start, script = summarise_ranks(waterfall_of(job(task(*ranks))))
    assert (fetch.step, start.step, script.step) == ("fetch", "launch + start", "script")
    assert (fetch.ranks, script.ranks) == (5, 4)
    assert (start.shortest, start.median, start.longest, start.longest_rank) == (*map(pytest.approx, (0.1, 0.3, 0.5)), 4)
    assert (start.start, start.end) == (pytest.approx(1.1), pytest.approx(1.4))
    assert summarise_ranks(waterfall_of(job())) == ()


def test_a_command_has_one_rank_like_any_other():
    status = job(task(outcome(marks=some("fetched", "launched", "ended"))), spec=CommandJob(argv=("true",)))
    assert [span.step for span in waterfall_of(status)] == ["queued", "assigned", "running", "finish", "fetch", "launch", "process"]
