"""Where a job's time went: spans of the job and of each of its ranks, made from its record alone; asks nobody, knows no clock.

A rank's mark is stored in seconds since its worker took the assignment in. It is drawn at `placed_at` + mark, on the control
plane's clock: what lies between placement and taking in is the delivery of the assignment, about a millisecond where the worker
waits for one. Durations within a rank are the worker's own and exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from gpulayer.protocol import MARKS, JobStatus, RankOutcome, TaskStatus

QUEUED, ASSIGNED, RUNNING, FINISH = JOB_STEPS = ("queued", "assigned", "running", "finish")
QUEUED_AGAIN = "earlier attempts, queued"
"""The first step of a job that was tried before: the record has the newest attempt's times only."""

_STEPS = {
    "fetched": "fetch",
    "equipped": "environment",
    "launched": "launch",
    "entered": "start",
    "imported": "imports",
    "met": "rendezvous",
}
_SELDOM = ("equipped",)
"""Marks that most jobs have no use for: where one is missing, its step did not take place."""
_SCRIPT_MARKS = ("entered", "imported", "met", "first_step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One step of a job, or of a rank.

    Args:
        step: what went on, in words.
        start: seconds since the job was created.
        end: the same; never before `start`, and never before the end of the span above it.
        rank: None for the job's own steps.
        node: None for the job's own steps.
        attempt: whose; of the job's own steps the newest.
        mark: the mark that ends it; None for the job's own steps.
        so_far: it goes on; `end` is the moment of asking.
    """

    step: str
    start: float
    end: float
    rank: int | None = None
    node: int | None = None
    attempt: int
    mark: str | None = None
    so_far: bool = False

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """One step over all ranks that have it; `start` and `end` are the medians, and what is not said is in seconds."""

    step: str
    ranks: int
    start: float
    end: float
    shortest: float
    median: float
    longest: float
    longest_rank: int


def waterfall_of(status: JobStatus, now: float | None = None) -> tuple[Span, ...]:
    """The job's own steps, then those of each rank in the order of nodes and ranks.

    The job's steps adjoin each other from its creation to its end. A rank's adjoin each other from its placement to the last mark
    that is known, which comes with the end of its task. Clocks that disagree shorten a span, down to nothing; they turn none round.
    A job that has not ended is drawn to `now` (Unix time), without it to the last moment that the record has.
    """
    bases = {task.node: task.placed_at - status.created_at for task in status.tasks if task.placed_at is not None}
    length = _length(status, bases, now)
    of_ranks = [
        span
        for task in sorted(status.tasks, key=lambda task: task.node)
        if task.node in bases
        for rank in sorted(task.ranks, key=lambda rank: rank.rank)
        for span in _rank_spans(task, rank, bases[task.node], length)
    ]
    return (*_job_spans(status, bases, of_ranks, length), *of_ranks)


def summarise_ranks(spans: Iterable[Span]) -> tuple[StepSummary, ...]:
    """The steps of all ranks, one row each; for jobs with more ranks than a person reads."""
    by_step: dict[str, list[Span]] = {}
    for span in spans:
        if span.mark is not None:
            by_step.setdefault(span.step, []).append(span)
    found = []
    for step, group in sorted(by_step.items(), key=lambda item: min(MARKS.index(span.mark or "") for span in item[1])):
        slowest = max(group, key=lambda span: span.seconds)
        found.append(
            StepSummary(
                step=step,
                ranks=len(group),
                start=median(span.start for span in group),
                end=median(span.end for span in group),
                shortest=min(span.seconds for span in group),
                median=median(span.seconds for span in group),
                longest=slowest.seconds,
                longest_rank=slowest.rank or 0,
            )
        )
    return tuple(found)


def _length(status: JobStatus, bases: dict[int, float], now: float | None) -> float:
    """How long the whole is: to the job's end, which nothing exceeds, or to the latest of all that is known."""
    if status.ended_at is not None:
        return max(0.0, status.ended_at - status.created_at)
    marks = [bases[task.node] + max(rank.marks.values(), default=0.0) for task in status.tasks if task.node in bases for rank in task.ranks]
    known = [moment - status.created_at for moment in (now, status.started_at) if moment is not None]
    return max([0.0, *known, *bases.values(), *marks])


def _job_spans(status: JobStatus, bases: dict[int, float], of_ranks: Sequence[Span], length: float) -> Iterator[Span]:
    current = [task for task in status.tasks if task.attempt == status.attempt]
    placed = min((bases[task.node] for task in current if task.node in bases), default=None)
    started = None if status.started_at is None else status.started_at - status.created_at
    steps = [
        (QUEUED if status.attempt == 1 else QUEUED_AGAIN, started if placed is None else placed),
        (ASSIGNED, started),
        (RUNNING, _last_end(current, of_ranks)),
        (FINISH, None),  # its end is the job's
    ]
    if placed is None and started is not None:
        del steps[1]  # from a control plane that doesn't say when it placed the job
    at = 0.0
    for step, known in steps:
        end = length if known is None else min(max(at, known), length)
        yield Span(step=step, start=at, end=end, attempt=status.attempt, so_far=known is None and status.ended_at is None)
        at = end
        if known is None:
            return


def _last_end(current: Sequence[TaskStatus], of_ranks: Sequence[Span]) -> float | None:
    """When the last rank had ended; None unless that is known of all."""
    ends = {(span.node, span.rank): span.end for span in of_ranks if span.mark == "ended"}
    ranks = [(task.node, rank.rank) for task in current for rank in task.ranks]
    all_known = bool(ranks) and all(task.ranks for task in current) and all(rank in ends for rank in ranks)
    return max(ends[rank] for rank in ranks) if all_known else None


def _rank_spans(task: TaskStatus, rank: RankOutcome, base: float, length: float) -> Iterator[Span]:
    at = min(max(0.0, base), length)
    previous: str | None = None
    for mark in MARKS:
        if mark in rank.marks:
            end = min(max(at, base + rank.marks[mark]), length)
            yield Span(step=_step(previous, mark), start=at, end=end, rank=rank.rank, node=task.node, attempt=task.attempt, mark=mark)
            at, previous = end, mark


def _step(previous: str | None, mark: str) -> str:
    """What went on between two marks that are known; those between them, if any, are not."""
    if mark in _STEPS:
        passed = MARKS[0 if previous is None else MARKS.index(previous) + 1 : MARKS.index(mark) + 1]
        return " + ".join(_STEPS[one] for one in passed if one == mark or one not in _SELDOM)
    if mark == "first_step":
        return "before the first step"
    if mark == "last_step":
        return "steps"
    if mark == "ended" and previous == "returned":
        return "teardown"
    if previous == "last_step":
        return "after the last step"
    # Without an entry it is no Python script of ours, or it ended before one.
    return "script" if previous in _SCRIPT_MARKS else "process"
