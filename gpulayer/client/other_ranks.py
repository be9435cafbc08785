"""What became of the ranks beside the one that failed first, and what each was doing when it was stopped. Pure.

The guilty rank itself is told by `failures`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpulayer.client.frame_places import Place, called_from_there, in_function, own_frame
from gpulayer.protocol import JobStatus, RankOutcome, ThreadStack

PARTS_NAMED = 16
ACTIVITIES_NAMED = 6


def other_ranks(status: JobStatus, place: Place) -> list[str]:
    """How those ended that did not fail first, in a line; then what the stopped ones were doing, a line for all that did the same."""
    guilty = status.failure.rank if status.failure is not None else None
    ranks = sorted((rank for task in status.tasks for rank in task.ranks), key=lambda rank: rank.rank)
    others = [rank for rank in ranks if rank.rank != guilty]
    return [*_how_they_ended(others, is_one_guilty=guilty is not None), *_what_they_did(ranks, place)]


def _how_they_ended(others: Sequence[RankOutcome], *, is_one_guilty: bool) -> list[str]:
    stopped = [rank.rank for rank in others if rank.collateral]
    if not stopped:
        return []
    ended = [rank.rank for rank in others if not rank.collateral and (rank.returned or rank.exit_code == 0)]
    failed = [rank.rank for rank in others if rank.rank not in (*stopped, *ended)]
    parts = [f"{'The other ranks were stopped' if is_one_guilty else 'Stopped ranks'}: {numbers(stopped)}"]
    parts += [f"had ended: {numbers(ended)}"] if ended else []
    parts += [f"failed as well: {numbers(failed)}"] if failed else []
    return ["; ".join(parts) + "."]


def _what_they_did(ranks: Iterable[RankOutcome], place: Place) -> list[str]:
    """Of a job whose time was up the first rank too: it failed by nothing else."""
    doing: dict[str, list[int]] = {}
    for rank in ranks:
        if (activity := activity_of(rank.stacks, place)) is not None:
            doing.setdefault(activity, []).append(rank.rank)
    lines = [
        f"{'Rank' if len(group) == 1 else 'Ranks'} {numbers(group)} {'was' if len(group) == 1 else 'were'} {activity}."
        for activity, group in doing.items()
    ]
    left = len(lines) - ACTIVITIES_NAMED
    if left <= 0:
        return lines
    unnamed = sorted(rank for group in list(doing.values())[ACTIVITIES_NAMED:] for rank in group)
    return [
        *lines[:ACTIVITIES_NAMED],
        f"{'Rank' if len(unnamed) == 1 else 'Ranks'} {numbers(unnamed)} {'was' if len(unnamed) == 1 else 'were'} elsewhere.",
    ]


def activity_of(stacks: Sequence[ThreadStack], place: Place) -> str | None:
    """`in all_reduce, main.py:14` or `at main.py:14 in train`; None where no stack is known."""
    main = next((stack for stack in stacks if stack.is_main), stacks[0] if stacks else None)
    if main is None:
        return None
    own = own_frame(main.frames)
    if own is None:
        return "starting or ending"  # its main thread held no line of the script
    called = called_from_there(main.frames)
    return f"in {called}, {place(own)}" if called is not None else f"at {in_function(own, place)}"


def numbers(ranks: Sequence[int]) -> str:
    """Ascending ranks, three or more in a row as `1–3`; of very many the first."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [part for run in runs for part in ([f"{run[0]}–{run[-1]}"] if len(run) > 2 else map(str, run))]
    return ", ".join(parts[:PARTS_NAMED]) + (f" … ({len(ranks)} in all)" if len(parts) > PARTS_NAMED else "")
