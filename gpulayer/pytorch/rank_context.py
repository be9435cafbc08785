"""Where this process stands: outside any job, or as one rank of a job or of a torchrun that a person started.

Reads the rank variables and nothing else; needs no torch. Runs in scripts, kernels and ranks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from gpulayer.bundle.executing import REPLAYS, Position, executing_place

REQUESTED_FIT = "_GPULAYER_FIT"
"""In a job that a script's k-th `Trainer.fit` launched: k. See `trainer.py`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankContext:
    """The rank variables of one process, as numbers.

    Args:
        job_id: the GPUlayer job; None outside one.
        is_rank: a job or a torchrun started this process, so nothing is left to launch.
        rank: global rank.
        local_rank: rank on this node.
        world_size: ranks of the whole job.
        nodes: nodes of the whole job.
        devices: devices of the job on each node.
        accelerator: the kind that was granted; None where nobody granted one.
        output_dir: files in it come back as artifacts; None outside a job.
        inputs_dir: where the job's inputs lie; None outside a job.
        requested_fit: which `fit` call of the script the job was submitted for.
    """

    job_id: str | None = None
    is_rank: bool = False
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    nodes: int = 1
    devices: int = 1
    accelerator: str | None = None
    output_dir: Path | None = None
    inputs_dir: Path | None = None
    requested_fit: int | None = None


def read_rank_context(environment: Mapping[str, str] = os.environ) -> RankContext:
    """The context as the environment tells it at this moment."""
    job_id = environment.get("GPULAYER_JOB_ID") or None
    started_by_torchrun = "RANK" in environment and "WORLD_SIZE" in environment
    world_size = int(environment.get("WORLD_SIZE", "1")) if started_by_torchrun else 1
    local_world_size = int(environment.get("LOCAL_WORLD_SIZE", str(world_size)))
    output, inputs = environment.get("GPULAYER_OUTPUT_DIR"), environment.get("GPULAYER_INPUTS_DIR")
    fit = environment.get(REQUESTED_FIT)
    return RankContext(
        job_id=job_id,
        is_rank=job_id is not None or started_by_torchrun,
        rank=int(environment.get("RANK", "0")) if started_by_torchrun else 0,
        local_rank=int(environment.get("LOCAL_RANK", "0")) if started_by_torchrun else 0,
        world_size=world_size,
        nodes=int(environment.get("GPULAYER_NODES", str(max(1, world_size // local_world_size)))),
        devices=int(environment.get("GPULAYER_DEVICES", str(local_world_size))),
        accelerator=environment.get("GPULAYER_ACCELERATOR") or None,
        output_dir=Path(output) if job_id and output else None,
        inputs_dir=Path(inputs) if job_id and inputs else None,
        requested_fit=int(fit) if job_id and fit is not None else None,
    )


def in_notebook() -> bool:
    """Whether this process is an IPython kernel or shell."""
    return executing_statement() is not None


def executing_statement() -> tuple[int, Position] | None:
    """Which cell of this kernel runs, and where in it; None where there is no kernel."""
    # Nothing imports IPython for the sake of this question: where it is not loaded, nobody is in it.
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return None if shell is None else (int(shell.execution_count), executing_place(shell.user_ns).position)


@dataclass(frozen=True, slots=True)
class ReplayedFit:
    """A fit of an earlier cell that an exported program repeats for what else its statement does.

    Args:
        weights: what it left in the kernel; None where the statement fitted several times, and trains again.
        figures: likewise.
    """

    weights: Path | None = None
    figures: Path | None = None


def replayed_fit() -> ReplayedFit | None:
    """What an exported program says about the statement that it runs; None where a fit is the job's own."""
    # Not `__main__` alone: a loader worker started by spawn runs the program under another name.
    names: dict[str, Any] = vars(sys.modules["__main__"])
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None:
        if REPLAYS in frame.f_globals:
            names = frame.f_globals
        frame = frame.f_back
    paths = names.get(REPLAYS)
    if paths is None:
        return None
    folder = Path(str(names["__file__"])).parent
    return ReplayedFit(*(folder / path for path in paths))
