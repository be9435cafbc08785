"""How a Python script becomes a job: the one place that decides which kind of job it is."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from gpulayer.spec import AnyJob, CommandJob, DistributedJob

RANK_ENTRY = "gpulayer.runtime.rank_main"


def script_job(
    script: str, args: tuple[str, ...] = (), *, nodes: int = 1, devices: int = 1, launcher: str | None = None, **options: Any
) -> AnyJob:
    """The spec that runs a script on `nodes` × `devices` ranks.

    One rank needs no launcher, and so no torch: it is one process, entered as every rank is.

    Args:
        script: relative to the source that travels.
        args: the script's arguments.
        nodes: how many workers take part.
        devices: whole devices per node.
        launcher: who starts the ranks (`DistributedJob`); without it torchrun, for more than one.
        options: the other fields of `spec.JobSpec`.
    """
    if nodes == 1 and devices == 1 and launcher is None:
        # Its command is the same for every script: without a name of its own it would be called "python".
        options["name"] = options.get("name") or PurePath(script).stem
        return CommandJob(argv=("python", "-m", RANK_ENTRY, script, *args), devices=devices, **options)
    return DistributedJob(script=script, args=args, nodes=nodes, devices=devices, launcher=launcher or "torchrun", **options)
