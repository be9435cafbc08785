from __future__ import annotations

import pytest
from support.client import job_status

from gpulayer.client.frame_places import file_and_line
from gpulayer.client.other_ranks import ACTIVITIES_NAMED, numbers, other_ranks
from gpulayer.protocol import Failure, Frame, JobStatus, RankOutcome, TaskStatus, ThreadStack
from gpulayer.states import AttemptState, JobState

TORCH = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def main_thread(line: int, called: str | None = "all_reduce") -> tuple[ThreadStack, ...]:
    frames = [Frame(file="/w/source/main.py", line=line, function="train")]
    frames += [Frame(file=TORCH, line=2000, function=called)] if called is not None else []
    reader = ThreadStack(is_main=False, frames=(Frame(file="/w/source/reader.py", line=1, function="read"),))
    return (reader, ThreadStack(is_main=True, frames=tuple(frames)))


def ended(*outcomes: dict, failure: Failure) -> JobStatus:
    """A job of two nodes whose ranks ended so."""
    ranks = [RankOutcome(**{"rank": rank, "local_rank": rank, **fields}) for rank, fields in enumerate(outcomes)]
    half = (len(ranks) + 1) // 2
    tasks = tuple(
        TaskStatus(node=node, state=AttemptState.FAILED, attempt=1, worker_id="w", worker="w", host="h", ranks=tuple(share))
        for node, share in enumerate((ranks[:half], ranks[half:]))
    )
    return job_status(JobState.FAILED, failure=failure, tasks=tasks)


RANK_0 = Failure(reason="rank", message="", rank=0, exit_code=1)


def test_ranks_that_did_the_same_share_a_line():
    status = ended(
        {"exit_code": 1},
        *({"collateral": True, "stacks": main_thread(14)} for _ in range(3)),
        {"collateral": True, "stacks": main_thread(20, called=None)},
        {"collateral": True},
        failure=RANK_0,
    )
    assert other_ranks(status, file_and_line) == [
        "The other ranks were stopped: 1–5.",
        "Ranks 1–3 were in all_reduce, main.py:14.",
        "Rank 4 was at main.py:20 in train.",
    ]


def test_when_time_was_up_every_rank_is_told():
    status = ended(*({"stacks": main_thread(14)} for _ in range(2)), failure=Failure(reason="timeout", message="", rank=0))
    assert other_ranks(status, file_and_line) == ["Ranks 0, 1 were in all_reduce, main.py:14."]


def test_a_rank_outside_its_script_is_told_as_such():
    status = ended({"exit_code": 1}, {"collateral": True, "stacks": (ThreadStack(is_main=True, frames=()),)}, failure=RANK_0)
    assert other_ranks(status, file_and_line)[1:] == ["Rank 1 was starting or ending."]


def test_of_very_different_ranks_the_first_are_told():
    status = ended({"exit_code": 1}, *({"collateral": True, "stacks": main_thread(line)} for line in range(1, 65)), failure=RANK_0)
    lines = other_ranks(status, file_and_line)
    assert len(lines) == ACTIVITIES_NAMED + 2
    assert lines[-1] == "Ranks 7–64 were elsewhere."


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1], "0, 1"),
        ([0, 1, 2, 5, 7, 8, 9], "0–2, 5, 7–9"),
        (list(range(0, 80, 2)), f"{', '.join(map(str, range(0, 32, 2)))} … (40 in all)"),
    ],
)
def test_ranks_in_a_row_are_written_as_a_range(ranks, text):
    assert numbers(ranks) == text
