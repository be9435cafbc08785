"""The one way to submit from where a person sits: `%%gpulayer`, `launch()`, `Trainer.fit` and the CLI all end here."""

from __future__ import annotations

from dataclasses import dataclass

from gpulayer.bundle.archive import Bundle
from gpulayer.client.client import Client
from gpulayer.client.job import Job
from gpulayer.client.uploads import check_given
from gpulayer.protocol import WorkerStatus
from gpulayer.spec import AnyJob


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job, and the workers that were started for it."""

    job: Job
    started_workers: tuple[WorkerStatus, ...]

    @property
    def notes(self) -> list[str]:
        """What was done beside what was asked for, in words; empty where nothing was."""
        if not self.started_workers:
            return []
        return [f"started {local_workers(len(self.started_workers), self.job.status.spec.devices)}"]


def submit_with_workers(client: Client, spec: AnyJob, *, source: Bundle | None = None, lease_seconds: float | None = None) -> Submitted:
    """Start the local workers that the job would wait for in vain (see `Client.start_workers_for`), then submit it.

    Raises:
        GPUlayerError: as `Client.submit`.
    """
    check_given(spec)
    started = client.start_workers_for(spec)
    return Submitted(client.submit(spec, source=source, lease_seconds=lease_seconds), tuple(started))


def local_workers(count: int, devices: int) -> str:
    """So many workers that are started for a job, in words."""
    return f"{count} local worker{'s' if count > 1 else ''} × {devices} CPU device{'s' if devices > 1 else ''}"
