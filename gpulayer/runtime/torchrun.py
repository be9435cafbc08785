"""How the agent starts the torchrun launcher: its command line. What it does then stands in `torchrun_main`."""

from __future__ import annotations

from gpulayer.spec import DistributedJob


def launcher_command(spec: DistributedJob, python: str) -> list[str]:
    """The launcher process of one node; everything about the node is in its environment (`rank_environment`)."""
    return [python, "-P", "-m", "gpulayer.runtime.torchrun_main", spec.script, *spec.args]
