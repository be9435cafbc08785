"""An embedded control plane with workers as threads of the benchmark's own process, on a temporary home."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from served import environment, start_workers, temporary_folder

import gpulayer
from gpulayer.embedded import EmbeddedControlPlane


@contextlib.contextmanager
def embedded_workers(workers: int, *, env: dict[str, str] | None = None) -> Iterator[gpulayer.Client]:
    """A client of it, with `workers` workers that run one task at a time.

    Args:
        env: variables of this process while it lives; what is a worker's own process otherwise is this one here.
    """
    with temporary_folder() as folder, environment(GPULAYER_WORK_DIR=str(folder / "work"), **(env or {})):
        control_plane = EmbeddedControlPlane.open(folder / "home")
        try:
            client = control_plane.client()
            start_workers(client, workers, cpu_devices=1)
            yield client
        finally:
            control_plane.close()
