"""Who starts the ranks of a task here, and what has to be there before: the zygote, and the place where the ranks meet.

Runs in the agent, on the thread of the task's runner. How ranks start then is the runtime's matter.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from gpulayer.runtime.direct import open_meeting
from gpulayer.runtime.process import Keeper
from gpulayer.runtime.process_tree import IS_LINUX
from gpulayer.runtime.rank_environment import ADDRESS
from gpulayer.runtime.task_plan import TaskPlan
from gpulayer.runtime.zygote import TORCH_MODULES, Zygote
from gpulayer.spec import DistributedJob
from gpulayer.worker.meeting import Meeting

WarmMode = Literal["first", "ahead", "never"]
"""When a worker makes its zygote: for the first job that may start warm, as the worker starts, or not at all."""
_SEEN_WARM = ("cpu",)
"""Where `auto` may start ranks warm: what the suite has run on. The others follow when it has run there."""
MOST_WARM = 8
"""How many ranks wait, parked, for the next job that starts warm: a fork of a zygote takes some 10 ms (ADR-0035)."""

_OWN_INTERPRETER = "its requirements give it an interpreter of its own"


def make_zygote(keeper: Keeper, *, warm: WarmMode, preload: Sequence[str], devices: int) -> Zygote | None:
    """The worker's zygote; None where it is to have none."""
    if warm == "never" or not IS_LINUX:
        return None
    zygote = Zygote(keeper, (*TORCH_MODULES, *preload), parked=max(1, min(devices, MOST_WARM)))
    if warm == "ahead":
        zygote.start()
    return zygote


def prepare_ranks(plan: TaskPlan, zygote: Zygote | None, meeting: Meeting, stopped: threading.Event) -> TaskPlan:
    """The plan with who starts its ranks, and where they meet. Blocks until all that is ready.

    A command that needs torch starts warm as well where a zygote is ready; for one alone, waiting would gain nothing.

    Args:
        plan: of a task whose source is there.
        zygote: the worker's, where it may have one.
        meeting: of the attempt, with its other nodes.
        stopped: set when the task is to be stopped.

    Raises:
        Interrupted: the task was stopped.
        OSError: nothing can listen at this node's address.
    """
    if not isinstance(plan.spec, DistributedJob):
        if zygote is None or "torch" not in plan.spec.requires or plan.start == "cold" or plan.accelerator not in _SEEN_WARM:
            return plan
        if plan.python != zygote.python:
            return replace(plan, cold_reason=_OWN_INTERPRETER)
        zygote.start()
        if zygote.is_ready:
            return replace(plan, launcher="warm")
        return replace(plan, cold_reason="its worker's zygote was not ready, and a command does not wait for it")
    launcher, reason = _choose_launcher(plan, zygote, stopped)
    if launcher == "torchrun":
        return replace(plan, launcher=launcher, cold_reason=reason)
    point = open_meeting(
        node=plan.node,
        nodes=plan.nodes,
        address=plan.env[ADDRESS],
        publish=lambda address, port: meeting.publish(address, port, stopped),
        read=lambda: meeting.read(stopped),
    )
    return replace(plan, launcher=launcher, cold_reason=reason, meeting=point)


def _choose_launcher(
    plan: TaskPlan, zygote: Zygote | None, stopped: threading.Event
) -> tuple[Literal["torchrun", "direct", "warm"], str | None]:
    """Who starts the ranks, and why that is not `warm` where it might have been."""
    assert isinstance(plan.spec, DistributedJob)
    asked = plan.spec.launcher
    if asked in ("torchrun", "direct"):
        return ("torchrun" if asked == "torchrun" else "direct"), None
    if not IS_LINUX:
        return "direct", "ranks start warm on Linux only"
    if asked == "auto" and plan.accelerator not in _SEEN_WARM:
        return "torchrun", f"a warm start has not been seen to work on {plan.accelerator}; launcher='warm' tries it"
    if plan.start == "cold":
        return "direct", "GPULAYER_START=cold"
    if zygote is None:
        return "direct", "this worker makes no zygote (--warm never)"
    if plan.python != zygote.python:
        return "direct", _OWN_INTERPRETER
    reason = zygote.wait_ready(stopped.is_set)
    return ("warm", None) if reason is None else ("direct", reason)
