"""What is said of the environment of a job's ranks, in words."""

from __future__ import annotations

from collections.abc import Sequence

from gpulayer.protocol import JobStatus

DIFFERENCES_SHOWN = 12


def differences_text(workers: Sequence[str], differences: Sequence[str]) -> str:
    """One line; "there" is where the program was written."""
    who = f"Worker {workers[0]} has" if len(workers) == 1 else f"Workers {', '.join(workers)} have"
    shown = "; ".join(differences[:DIFFERENCES_SHOWN])
    more = f"; and {len(differences) - DIFFERENCES_SHOWN} more" if len(differences) > DIFFERENCES_SHOWN else ""
    return f"{who} other versions than where the program was written: {shown}{more}."


def other_versions(status: JobStatus) -> list[str]:
    """The same for all nodes of a job that have told what they found: workers that found the same share a line."""
    found: dict[tuple[str, ...], list[str]] = {}
    for task in status.tasks:
        if task.environment is not None and task.environment.differences:
            workers = found.setdefault(task.environment.differences, [])
            if task.worker not in workers:
                workers.append(task.worker)
    return [differences_text(workers, differences) for differences, workers in found.items()]
