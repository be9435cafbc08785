"""`gpulayer workers`: who offers devices, and which of them are held."""

from __future__ import annotations

from typing import Any

import click

from gpulayer.cli.listing import print_listing
from gpulayer.cli.options import json_option, target_option
from gpulayer.client.listings import WORKER_COLUMNS, worker_row
from gpulayer.protocol import WorkerStatus
from gpulayer.targets import connect


@click.command()
@click.option("--all", "include_gone", is_flag=True, help="Also those that are gone.")
@json_option
@target_option
def workers(include_gone: bool, as_json: bool, target: str | None) -> None:
    """List workers and their devices."""
    with connect(target) as client:
        records = [_record(worker) if as_json else worker_row(worker) for worker in client.workers(include_gone=include_gone)]
    print_listing(records, WORKER_COLUMNS, as_json=as_json, empty="no workers; start one: gpulayer worker start")


def _record(worker: WorkerStatus) -> dict[str, Any]:
    return {
        "id": worker.worker_id,
        "name": worker.name,
        "host": worker.host,
        "state": worker.state,
        "local": worker.local,
        "devices": [
            {"id": device.id, "accelerator": device.accelerator, "name": device.name, "simulated": device.simulated}
            for device in worker.devices
        ],
        "devices_held": dict(worker.devices_held),
        "frameworks": dict(worker.frameworks),
        "python": worker.python,
        "version": worker.version,
        "registered_at": worker.registered_at,
        "last_seen_at": worker.last_seen_at,
    }
