"""What every task of one worker needs to know of it. Runs in the agent."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpulayer.protocol import TaskAssignment, WorkerId
from gpulayer.runtime.process import Keeper
from gpulayer.runtime.rank_environment import task_environment
from gpulayer.runtime.task_plan import TaskPlan
from gpulayer.runtime.zygote import Zygote
from gpulayer.spec import DistributedJob
from gpulayer.worker.artifact_cache import ArtifactCache
from gpulayer.worker.server_link import ServerLink
from gpulayer.worker.slots import Slots


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlace:
    """The worker that a task runs on."""

    worker_id: WorkerId
    boot: str
    name: str
    address: str
    python: str
    environment: dict[str, str]
    link: ServerLink
    cache: ArtifactCache
    keeper: Keeper
    zygote: Zygote | None
    slots: Slots
    start: Literal["auto", "cold"]

    def plan(self, task: TaskAssignment, workspace: Path, *, begun_at: float) -> TaskPlan:
        """The task as the runtime starts it, in a workspace that is ready; it was taken in at `begun_at`, in monotonic seconds."""
        spec = task.spec
        environment = task_environment(
            self.environment,
            job_env=spec.env,
            job_id=task.job_id,
            task_id=task.task_id,
            attempt=task.attempt,
            node=task.node,
            nodes=task.nodes,
            devices=task.devices,
            accelerator=task.accelerator,
            workspace=workspace,
            ranks_per_node=spec.devices if isinstance(spec, DistributedJob) else 1,
            address=self.address,
        )
        return TaskPlan(
            spec=spec,
            task_id=task.task_id,
            attempt=task.attempt,
            job_id=task.job_id,
            node=task.node,
            nodes=task.nodes,
            devices=task.devices,
            accelerator=task.accelerator,
            python=self.python,
            workspace=workspace,
            env=environment,
            start=self.start,
            begun_at=begun_at,
            fetched_at=time.monotonic(),
        )

    def wake(self) -> None:
        """Have every task that waits here for something look whether it is to give up."""
        self.link.wake()
        self.slots.wake()
        if self.zygote is not None:
            self.zygote.wake()

    def close(self) -> None:
        """End whatever still runs here."""
        if self.zygote is not None:
            self.zygote.close()
        self.keeper.close()
