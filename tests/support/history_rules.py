"""What must be true of what `observed_moves` saw, whatever happened: pure functions from rows to sentences about what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpulayer.states import ATTEMPT_MOVES, JOB_MOVES, AttemptState, JobState
from support.observed_moves import Observed

_LEGAL = {"job": {(move.leaves.value, move.reaches.value) for move in JOB_MOVES}} | {
    "attempt": {(move.leaves.value, move.reaches.value) for move in ATTEMPT_MOVES}
}
_MADE_AS = {"job": JobState.QUEUED.value, "attempt": AttemptState.PLACED.value}
JOB_ENDS = frozenset(state.value for state in JobState if state.is_terminal)
ATTEMPT_ENDS = frozenset(state.value for state in AttemptState if state.is_terminal)


def illegal_moves(seen: Iterable[Observed]) -> Iterator[str]:
    """Moves that the table of states does not hold, and rows that began or ended otherwise."""
    for row in seen:
        if row.kind not in _LEGAL or (row.leaves, row.reaches) in _LEGAL[row.kind]:
            continue
        if row.leaves is not None or row.reaches != _MADE_AS[row.kind]:
            yield f"illegal move of {name_of(row)}: {row.leaves} → {row.reaches}"


def repeated_ends(seen: Iterable[Observed]) -> Iterator[str]:
    """Jobs that ended more than once."""
    ended: dict[str, str] = {}
    for row in seen:
        if row.kind == "job" and row.reaches in JOB_ENDS:
            if row.job_id in ended:
                yield f"job {row.job_id} ended twice: {ended[row.job_id]}, then {row.reaches}"
            ended[row.job_id] = str(row.reaches)


def late_writes(seen: Iterable[Observed]) -> Iterator[str]:
    """Writes that reached the record or the output of an attempt that had ended: the fence did not hold."""
    for row in seen:
        if row.kind == "late":
            yield f"fenced write stored: {row.detail} of {name_of(row)}"


def shared_devices(seen: Sequence[Observed]) -> Iterator[str]:
    """Devices that were given to an attempt before the one that had them has ended."""
    ends: set[tuple[str, int | None, int]] = set()
    holders: dict[str, Observed] = {}
    for row in seen:
        who = (row.job_id, row.node, row.attempt)
        if row.kind == "attempt" and row.reaches in ATTEMPT_ENDS:
            ends.add(who)
        elif row.kind == "reserved":
            assert row.detail is not None
            before = holders.get(row.detail)
            if before is not None and (before.job_id, before.node, before.attempt) not in ends:
                yield f"device twice: {row.detail} was given to {name_of(row)} while {name_of(before)} was alive"
            holders[row.detail] = row


def name_of(row: Observed) -> str:
    """What a row is about, in words."""
    if row.kind == "job":
        return f"job {row.job_id}"
    return f"attempt {row.attempt} of task {row.job_id}.{row.node}"
