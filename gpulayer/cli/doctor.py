"""`gpulayer doctor`: what connect() finds from here, and what this machine has."""

from __future__ import annotations

import json
import platform
import sys
from typing import Any

import click

from gpulayer import settings
from gpulayer._version import __version__
from gpulayer.cli.options import target_option
from gpulayer.errors import GPUlayerError
from gpulayer.protocol import PROTOCOL_VERSION
from gpulayer.targets import connect


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@target_option
def doctor(as_json: bool, target: str | None) -> int:
    """Say which control plane is found from here, which versions meet, and which devices and frameworks this machine has."""
    from gpulayer.hardware.inventory import find_devices, find_frameworks

    report: dict[str, Any] = {
        "gpulayer": __version__,
        "protocol": PROTOCOL_VERSION,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "home": str(settings.home()),
        "work_dir": str(settings.work_dir()),
    }
    problem: GPUlayerError | None = None
    try:
        with connect(target) as client:
            health = client.health()
            report["control_plane"] = client.description
            report["control_plane_version"] = f"{health.version}, protocol {health.protocol}"
            report["workers_alive"] = health.workers_alive
            report["jobs_unfinished"] = health.jobs_unfinished
    except GPUlayerError as error:
        problem = error
        report["control_plane"] = None
        report["problem"] = error.two_lines()
    report["devices"] = [f"{device.id} {device.name}".strip() for device in find_devices(cpu_devices=1) if device.accelerator != "cpu"]
    report["frameworks"] = find_frameworks(sys.executable)
    if as_json:
        print(json.dumps(report))
    else:
        for key, value in report.items():
            print(f"{key.replace('_', ' '):22}{_text(value)}")
    return 0 if problem is None else 1


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}".strip() for name, version in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(value) or "none besides the cpu"
    return "none" if value is None else str(value)
