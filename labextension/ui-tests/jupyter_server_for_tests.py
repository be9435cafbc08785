"""The Jupyter servers that the browser tests run against: real ones on a free loopback port, each with a home of its own.

Runs as a child of the tests, told what to do by lines on stdin and answering each with a line of JSON on stdout; when stdin
ends, it ends the server and all that came from it. The argument is the kind: `lab` is JupyterLab with Galata's settings, without
login, with two workers; `notebook` the same for Notebook 7; `user` a server as a hub starts it, below a prefix, with token and XSRF
check and without workers.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from support.server import RunningServer, running_server

import gpulayer

GALATA = """
from jupyterlab.galata import configure_jupyter_server

configure_jupyter_server(c)
"""
COMMON = """
from pathlib import Path

import jupyterlab.galata

c.LabServerApp.extra_labextensions_path = str(Path(jupyterlab.galata.__file__).parent)
c.LabApp.news_url = None
c.LabApp.expose_app_in_browser = True
c.JupyterNotebookApp.expose_app_in_browser = True
"""
CPU_DEVICES = 2
"""Of each worker: no test needs more on one node."""
STOP_SECONDS = 60.0
"""It ends its kernels first, one that runs a cell by force."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a server is started.

    Args:
        module: what `python -m` runs.
        workers: that are there before the first test.
    """

    module: str = "jupyterlab"
    config: str = GALATA + COMMON
    base_url: str = "/"
    workers: int = 2


KINDS = {
    "lab": Kind(),
    "notebook": Kind(module="notebook"),
    "user": Kind(config=COMMON, base_url="/user/x/", workers=0),
}


def free_port() -> int:
    """A port that is free at the moment; the same one serves again after a restart."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def main() -> None:
    """Serve until stdin ends."""
    kind = KINDS[sys.argv[1]]
    folder = Path(tempfile.mkdtemp(prefix="gpulayer-ui-"))
    temporary = folder / "tmp"  # Galata's configuration makes folders there and leaves them
    temporary.mkdir()
    config = folder / "config.py"
    config.write_text(kind.config)
    root = folder / "root"
    try:
        with running_server(
            folder / "home",
            base_url=kind.base_url,
            lab=True,
            root_dir=root,
            extra=(f"--config={config}",),
            # Ranks that import torch for themselves take seconds each.
            env={"JUPYTERLAB_GALATA_ROOT_DIR": str(root), "TMPDIR": str(temporary), "GPULAYER_WARM": "ahead"},
            module=(kind.module,),
            port=free_port(),
        ) as server:
            if kind.workers:
                start_workers(server, kind.workers)
            tell({"url": server.url, "token": server.token, "root": str(root)})
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
        case "held":
            return {"held": devices_held(server)}
        case _:
            return {"error": f"unknown command {command!r}"}
    return {"url": server.url}


def devices_held(server: RunningServer) -> int:
    """How many devices are held at this moment, by what the workers say."""
    with gpulayer.connect(server.url, token=server.client_token) as client:
        return sum(len(worker.devices_held) for worker in client.workers())


def start_workers(server: RunningServer, count: int) -> None:
    """Workers on this machine, with pretended devices."""
    with gpulayer.connect(server.url, token=server.client_token) as client:
        client.ensure_local_workers(count, cpu_devices=CPU_DEVICES)


def tell(answer: dict[str, Any]) -> None:
    """Answer the tests."""
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
