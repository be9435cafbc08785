"""Says in words and fields why a rank failed, for the job's record. Runs in the agent."""

from __future__ import annotations

import signal

from gpulayer.protocol import Failure
from gpulayer.runtime.exit_reason import MemoryKills, describe_exit, describe_kill
from gpulayer.runtime.task_plan import TaskPlan
from gpulayer.runtime.task_ranks import LocalRank
from gpulayer.spec import DistributedJob


def describe_rank_failure(plan: TaskPlan, rank: LocalRank, kills_before: MemoryKills, last_lines: tuple[str, ...]) -> Failure:
    """The failure that this rank stands for.

    Args:
        plan: the attempt.
        rank: the first rank of it that failed.
        kills_before: the kernel's counters when the attempt began.
        last_lines: what the rank printed last.
    """
    exit_code = rank.exit.exit_code if rank.exit is not None else rank.announced_code
    number = rank.exit.signal if rank.exit is not None else None
    if rank.error is not None:
        first_line = rank.error.message.partition("\n")[0]
        message = f"Rank {rank.rank} raised {rank.error.type}" + (f": {first_line}" if first_line else "")
    else:
        message = f"Rank {rank.rank} {describe_exit(exit_code, number)}"
    if number == signal.SIGKILL and rank.exit is not None:
        message += f". {describe_kill(kills_before, MemoryKills.count(), rank.exit.peak_bytes)}"
    devices = plan.devices[rank.local_rank : rank.local_rank + 1] if isinstance(plan.spec, DistributedJob) else plan.devices
    return Failure(
        reason="rank",
        message=message,
        node=plan.node,
        rank=rank.rank,
        device=", ".join(device.id for device in devices) or None,
        exit_code=exit_code,
        signal=number,
        error=rank.error,
        last_lines=last_lines,
    )
