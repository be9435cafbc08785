"""Which signal asks a rank to end. Runs in the agent; when to ask and how long to wait is `task_process`'s."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from gpulayer.runtime.process_tree import catches_signal, ignores_signal
from gpulayer.runtime.task_processes import TaskProcesses
from gpulayer.runtime.task_ranks import LocalRank


def ask_to_end(processes: TaskProcesses, ranks: Iterable[LocalRank], *, is_collateral: bool, is_python: bool) -> None:
    """Send SIGTERM to siblings of a failed rank; to others SIGINT, which Python unwinds from, or SIGTERM if they handle that.

    The ranks get it and not what they started: a loader worker that dies first spoils an emergency checkpoint. A rank that
    has said how it ended is leaving, and still has to flush what it printed.

    Args:
        processes: the task's.
        ranks: whom to ask.
        is_collateral: whether another rank failed; these mostly sit in a collective that can't end.
        is_python: a command that isn't gets SIGINT as from a terminal, with its process group.
    """
    for rank in ranks:
        if rank.pid is None or rank.failed or rank.returned:
            continue
        if is_collateral or catches_signal(rank.pid, signal.SIGTERM) or ignores_signal(rank.pid, signal.SIGINT):
            processes.signal(rank.pid, signal.SIGTERM)
        else:
            processes.signal(rank.pid, signal.SIGINT, group=not is_python)
