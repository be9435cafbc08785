"""What every task of one worker needs to know of it. Runs in the agent."""

from __future__ import annotations

import os
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
from gpulayer.worker.environments import Environment
from gpulayer.worker.job_environments import JobEnvironments
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
    environments: JobEnvironments
    keeper: Keeper
    zygote: Zygote | None
    slots: Slots
    start: Literal["auto", "cold"]

    def plan(
        self,
        task: TaskAssignment,
        workspace: Path,
        *,
        begun_at: float,
        fetched_at: float,
        equipped_at: float | None = None,
        environment: Environment | None = None,
    ) -> TaskPlan:
        """The task as the runtime starts it, in a workspace that is ready; moments are in monotonic seconds.

        Args:
            task: what was assigned.
            workspace: with source and inputs.
            begun_at: when the assignment was taken in.
            fetched_at: when source and inputs were there.
            equipped_at: when `environment` was.
            environment: of the job's requirements.
        """
        spec = task.spec
        variables = task_environment(
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
        python = self.python
        if environment is not None:
            python = environment.python
            variables["VIRTUAL_ENV"] = str(environment.folder)
            variables["PATH"] = f"{environment.folder}/bin{os.pathsep}{variables.get('PATH', os.defpath)}"
        return TaskPlan(
            spec=spec,
            task_id=task.task_id,
            attempt=task.attempt,
            job_id=task.job_id,
            node=task.node,
            nodes=task.nodes,
            devices=task.devices,
            accelerator=task.accelerator,
            python=python,
            workspace=workspace,
            env=variables,
            start=self.start,
            begun_at=begun_at,
            fetched_at=fetched_at,
            equipped_at=equipped_at,
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
