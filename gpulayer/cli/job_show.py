"""`gpulayer jobs show JOB` for people: what was asked, where it ran, how each rank ended, and where the time went.

Long jobs and wide ones stay readable: past a few ranks, those that ended alike share a row, and steps are summed up over ranks.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from gpulayer.cli.listing import print_table, printable
from gpulayer.client.downloads import output_files
from gpulayer.client.failures import device_text, job_failed, signal_name
from gpulayer.client.status_text import bytes_text, duration_text
from gpulayer.client.waterfall import Span, summarise_ranks
from gpulayer.protocol import JobStatus, RankOutcome, TaskEnvironment, TaskStatus
from gpulayer.spec import DistributedJob, node_count
from gpulayer.states import JobState

RANKS_SHOWN = 8  # what one screen holds with the steps of each; a node has seldom more devices
ROWS_SHOWN = 16
PACKAGES_SHOWN = 8
BAR_CELLS = 20  # with the other columns within 80


def print_job(status: JobStatus, spans: Sequence[Span]) -> None:
    """Print everything about a job but its logs and its variables."""
    _print_facts(status)
    if status.state in (JobState.FAILED, JobState.CANCELLED):
        print()
        for line in job_failed(status).two_lines().splitlines():
            print(printable(line))
    if status.tasks:
        print()
        rows = [(task.node, task.state.value, task.worker, task.host, ", ".join(map(device_text, task.devices))) for task in status.tasks]
        _print_some(rows, ("node", "state", "worker", "host", "devices"), what="nodes")
    if any(task.environment is not None for task in status.tasks):
        print()
        _print_environments(status)
    if any(task.ranks for task in status.tasks):
        print()
        _print_ranks(status)
    if files := output_files(status):
        print()
        _print_some(
            [(path, bytes_text(file.size_bytes)) for path, file in files.items()], ("output", "size"), what="outputs", right=("size",)
        )
    print()
    _print_waterfall(status, spans)


def bar(start: float, end: float, length: float) -> str:
    """A span as cells of a line that stands for the whole; a short one takes a cell as well."""
    if length <= 0:
        return ""
    first = min(int(start / length * BAR_CELLS), BAR_CELLS - 1)
    last = max(first + 1, min(round(end / length * BAR_CELLS), BAR_CELLS))
    return " " * first + "█" * (last - first)


def outcome_text(rank: RankOutcome) -> str:
    """How a rank's process ended."""
    if rank.signal is not None:
        how = f"{signal_name(rank.signal)} (signal {rank.signal})"
    elif rank.exit_code is not None:
        how = f"exit code {rank.exit_code}"
    else:
        how = "end not seen"
    if rank.collateral:
        return f"stopped as another failed: {how}"
    # Its script is what counts: a crash while the interpreter is taken down does not.
    return f"returned, then {how}" if rank.returned and rank.exit_code != 0 else how


def _print_facts(status: JobStatus) -> None:
    nodes, devices = node_count(status.spec), status.spec.devices
    shape = f"{_count(nodes, 'node')} × {_count(devices, 'device')}, {status.accelerator or status.spec.accelerator}"
    facts = [
        ("job", status.job_id),
        ("name", status.name),
        ("state", status.state.value + (f": {status.waiting_for}" if status.waiting_for else "")),
        ("shape", shape),
        ("launcher", _launchers(status)),
        ("attempt", f"{status.attempt} of at most {status.spec.retries + 1}" if status.spec.retries else ""),
        ("created", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(status.created_at))),
    ]
    for word, text in facts:
        if text:
            print(f"{word:<10}{printable(text)}")


def _launchers(status: JobStatus) -> str:
    """Who was asked to start the ranks, and who did."""
    if not isinstance(status.spec, DistributedJob):
        return ""
    used = Counter(rank.launcher for task in status.tasks for rank in task.ranks if rank.launcher is not None)
    if not used or set(used) == {status.spec.launcher}:
        return status.spec.launcher
    return f"{status.spec.launcher} asked; " + ", ".join(f"{name} for {_count(count, 'rank')}" for name, count in sorted(used.items()))


def _print_environments(status: JobStatus) -> None:
    """What the ranks found; nodes that found the same share a row."""
    nodes: dict[tuple[str, str, str], list[int]] = {}
    for task in status.tasks:
        if task.environment is not None:
            nodes.setdefault(_environment_cells(task.environment), []).append(task.node)
    rows = [(", ".join(map(str, numbers)), *cells) for cells, numbers in nodes.items()]
    _print_some(rows, ("node", "Python", "packages", "note"), what="environments")


def _environment_cells(environment: TaskEnvironment) -> tuple[str, str, str]:
    packages = [f"{name} {version}" for name, version in sorted(environment.packages.items())]
    more = f" and {len(packages) - PACKAGES_SHOWN} more" if len(packages) > PACKAGES_SHOWN else ""
    notes = ["of its requirements"] if environment.requirements is not None else []
    if environment.differences:
        notes.append("written with others: " + "; ".join(environment.differences[:PACKAGES_SHOWN]))
    return environment.python, ", ".join(packages[:PACKAGES_SHOWN]) + more, ", ".join(notes)


def _print_ranks(status: JobStatus) -> None:
    ended = [(task, rank) for task in status.tasks for rank in task.ranks]
    columns = ("rank", "node", "launcher", "outcome", "note")
    if len(ended) <= RANKS_SHOWN:
        print_table([_rank_cells(task, rank) for task, rank in ended], columns)
        return
    rows = []
    for cells, group in groupby((_rank_cells(task, rank) for task, rank in ended), key=lambda cells: cells[1:]):
        ranks = [one[0] for one in group]
        rows.append((ranks[0] if len(ranks) == 1 else f"{ranks[0]}–{ranks[-1]}", *cells))
    _print_some(rows, columns, what="rows of ranks")


def _rank_cells(task: TaskStatus, rank: RankOutcome) -> tuple[str, ...]:
    notes = []
    if rank.error is not None:
        message = rank.error.message.strip().splitlines()
        notes.append(f"{rank.error.type}: {message[0]}" if message else rank.error.type)
    if rank.cold_reason is not None:
        notes.append(f"not started warm: {rank.cold_reason}")
    started = rank.launcher or (f"command, {rank.start}" if rank.start is not None else "command")
    return str(rank.rank), str(task.node), started, outcome_text(rank), "; ".join(notes)


def _print_waterfall(status: JobStatus, spans: Sequence[Span]) -> None:
    length = max((span.end for span in spans), default=0.0)
    ranks = {span.rank for span in spans if span.rank is not None}
    guilty = status.failure.rank if status.failure is not None else None
    shown = [span for span in spans if span.rank is None or len(ranks) <= RANKS_SHOWN or span.rank == guilty]
    rows = []
    said = ""
    for span in shown:
        who = "job" if span.rank is None else f"rank {span.rank}"
        time_taken = duration_text(span.seconds) + (" so far" if span.so_far else "")
        rows.append((who if who != said else "", span.step, duration_text(span.start), time_taken, bar(span.start, span.end, length)))
        said = who
    print_table(rows, ("", "step", "from", "time", ""), right=("from", "time"))
    if len(ranks) <= RANKS_SHOWN:
        return
    print()
    summed = [
        (
            one.step if one.ranks == len(ranks) else f"{one.step} ({_count(one.ranks, 'rank')})",
            duration_text(one.shortest),
            duration_text(one.median),
            f"{duration_text(one.longest)} (rank {one.longest_rank})",
            bar(one.start, one.end, length),
        )
        for one in summarise_ranks(spans)
    ]
    print_table(summed, (f"step of {len(ranks)} ranks", "least", "median", "most", ""), right=("least", "median", "most"))


def _print_some(rows: Sequence[Sequence[object]], columns: Sequence[str], *, what: str, right: Sequence[str] = ()) -> None:
    print_table(rows[:ROWS_SHOWN], columns, right=right)
    if len(rows) > ROWS_SHOWN:
        print(f"… {len(rows) - ROWS_SHOWN} more {what}; --json has all")


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
