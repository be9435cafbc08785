"""A real Jupyter server over a copy of the notebooks, with workers, and a client on it: what the end-to-end tests start from."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpulayer
from support.server import running_server

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@dataclass
class Served:
    """`folder` is the server's root: the notebooks' helper modules lie in it, as they lie beside the notebooks."""

    server: Any
    client: gpulayer.Client
    folder: Path


@contextlib.contextmanager
def served_notebooks(folder: Path, *, workers: int = 2, cpu_devices: int = 2, **options: Any) -> Iterator[Served]:
    """Start the server on a temporary home and root folder, and `workers` local workers."""
    root = folder / "root"
    root.mkdir()
    for module in NOTEBOOKS.glob("*.py"):
        shutil.copy(module, root)
    with (
        running_server(folder / "home", root_dir=root, **options) as server,
        gpulayer.connect(server.url, token=server.client_token) as client,
    ):
        if workers:
            client.ensure_local_workers(workers, cpu_devices=cpu_devices)
        yield Served(server=server, client=client, folder=root)
