"""What every task of one worker needs to know of it. Runs in the agent."""

from __future__ import annotations

from dataclasses import dataclass

from gpulayer.protocol import WorkerId
from gpulayer.runtime.process import Keeper
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
    slots: Slots
