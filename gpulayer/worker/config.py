"""What a worker is told when it starts."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gpulayer import settings


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """What a worker is told when it starts.

    Args:
        name: shown in lists.
        work_dir: for the artifact cache and workspaces; workers of one user may share it.
        cpu_devices: how many `cpu` devices it offers; None: its cores.
        simulate: pretend devices instead of real ones ("cuda:4"), for scheduling tests.
        python: the interpreter that jobs run under.
        address: where other workers reach this one; None: the address it reaches the control plane from.
        local: started by the control plane on its own machine; ends when idle and without a server for a minute.
        environment: what jobs inherit; None: this process's own.
        start: whether Python jobs may start in parked interpreters.
        warm: when it imports torch for the ranks that start warm: `first` for the first job of the kind, `ahead` as it starts, `never`.
        preload: what is imported there besides.
    """

    name: str
    work_dir: Path
    cpu_devices: int | None = None
    simulate: str | None = None
    python: str = sys.executable
    address: str | None = None
    local: bool = False
    environment: dict[str, str] | None = field(default=None, repr=False)
    start: Literal["auto", "cold"] = field(default_factory=settings.start_mode)
    warm: Literal["first", "ahead", "never"] = field(default_factory=settings.warm_mode)
    preload: tuple[str, ...] = field(default_factory=settings.preload)

    def cpu_device_count(self) -> int:
        """How many `cpu` devices it offers: the cores that this process may use, which a container may have limited."""
        if self.cpu_devices is not None:
            return self.cpu_devices
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
