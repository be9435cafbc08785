"""The JupyterLab that the browser tests run against: a real server on a free loopback port, with a home of its own and a worker.

Runs as a child of the tests, told what to do by lines on stdin and answering each with a line of JSON on stdout; when stdin
ends, it ends the server and all that came from it. Each test's own JupyterLab state lies in the browser (Galata).
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from support.server import RunningServer, running_server

import gpulayer

CONFIG = """
from jupyterlab.galata import configure_jupyter_server

configure_jupyter_server(c)
c.LabApp.news_url = None
"""
CPU_DEVICES = 4
STOP_SECONDS = 60.0
"""It ends its kernels first, one that runs a cell by force."""


def free_port() -> int:
    """A port that is free at the moment; the same one serves again after a restart."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def main() -> None:
    """Serve until stdin ends."""
    folder = Path(tempfile.mkdtemp(prefix="gpulayer-ui-"))
    temporary = folder / "tmp"  # Galata's configuration makes folders there and leaves them
    temporary.mkdir()
    config = folder / "config.py"
    config.write_text(CONFIG)
    try:
        with running_server(
            folder / "home",
            lab=True,
            root_dir=folder / "root",
            extra=(f"--config={config}",),
            # Ranks that import torch for themselves take seconds each.
            env={"JUPYTERLAB_GALATA_ROOT_DIR": str(folder / "root"), "TMPDIR": str(temporary), "GPULAYER_WARM": "ahead"},
            module=("jupyterlab",),
            port=free_port(),
        ) as server:
            start_workers(server)
            tell({"url": server.url, "home": str(server.home), "log": str(server.log_file)})
            for line in sys.stdin:
                tell(carry_out(server, line.strip()))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def carry_out(server: RunningServer, command: str) -> dict[str, Any]:
    """Do what one line asks for."""
    match command:
        case "restart":
            server.stop(timeout=STOP_SECONDS)
            server.start()
        case "stop":
            server.stop(timeout=STOP_SECONDS)
        case "start":
            server.start()
        case "held":
            return {"held": devices_held(server)}
        case _:
            return {"error": f"unknown command {command!r}"}
    return {"url": server.url}


def devices_held(server: RunningServer) -> int:
    """How many devices are held at this moment, by what the workers say."""
    with gpulayer.connect(server.url, token=server.client_token) as client:
        return sum(len(worker.devices_held) for worker in client.workers())


def start_workers(server: RunningServer) -> None:
    """One worker with enough devices for every test."""
    with gpulayer.connect(server.url, token=server.client_token) as client:
        client.ensure_local_workers(1, cpu_devices=CPU_DEVICES)


def tell(answer: dict[str, Any]) -> None:
    """Answer the tests."""
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
