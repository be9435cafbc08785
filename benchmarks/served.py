"""What benchmarks run against: a real Jupyter server with the extension and its workers, on a temporary home on loopback.

Everything that is started here is found by descent and ended with it, also on Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

import gpulayer
from gpulayer.hardware.inventory import find_devices
from gpulayer.protocol import JobStatus

START_SECONDS = 60.0
STOP_SECONDS = 15.0
_OTHERS = ("jupyter_server_terminals", "jupyterlab", "jupyter_lsp", "notebook_shim")
_EXTENSIONS = f"--ServerApp.jpserver_extensions={ {'gpulayer_server': True} | dict.fromkeys(_OTHERS, False) }"
"""Ours and no other: JupyterLab's take seconds of a start, and the requests of most benchmarks are not for them."""
_LAB = (
    f"--ServerApp.jpserver_extensions={ {'gpulayer_server': True, 'jupyterlab': True} | dict.fromkeys(_OTHERS[:1], False) }",
    "--LabApp.expose_app_in_browser=True",
)
COLD: dict[str, str] = {"GPULAYER_START": "cold"}
WARM: dict[str, str] = {"GPULAYER_START": "auto"}
_SETTINGS = ("GPULAYER_URL", "GPULAYER_TOKEN", "GPULAYER_CONNECTION_FILE", "GPULAYER_HOME", "GPULAYER_WORK_DIR")


@dataclass
class Server:
    """One running Jupyter server.

    Args:
        process: the server's own.
        url: its root.
        token: Jupyter's own, which its API takes as well as GPUlayer's.
        client_token: GPUlayer's, as clients find it in the connection file.
        client: a client over HTTP.
        folder: for whatever the benchmark leaves.
    """

    process: subprocess.Popen[bytes]
    url: str
    token: str
    client_token: str
    client: gpulayer.Client
    folder: Path
    _seen: list[psutil.Process] = field(default_factory=list)

    def descendants(self) -> list[psutil.Process]:
        """Every process that the server has started, workers, keepers and kernels."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._seen = psutil.Process(self.process.pid).children(recursive=True)
        return self._seen

    def workers(self) -> list[psutil.Process]:
        """The processes of its workers."""
        return [one for one in psutil.Process(self.process.pid).children() if "worker" in one.cmdline()]

    def new_client(self) -> gpulayer.Client:
        """Another client, with connections of its own."""
        return gpulayer.connect(self.url, token=self.client_token)


@contextlib.contextmanager
def served(*, workers: int = 0, cpu_devices: int = 1, env: dict[str, str] | None = None, lab: bool = False) -> Iterator[Server]:
    """A server, and on it `workers` local workers of `cpu_devices` devices each; with one device a worker runs one task at a time.

    Args:
        env: further variables of the server, which its workers inherit.
        lab: with JupyterLab, for a browser.
    """
    with contextlib.ExitStack() as ending, temporary_folder() as folder:
        process, token = _start(folder, env or {}, (_LAB if lab else (_EXTENSIONS,)))
        ending.callback(_end, process)
        connection = _connection(folder, process)
        client = ending.enter_context(gpulayer.connect(connection["url"], token=connection["token"]))
        server = Server(process, connection["url"], token, connection["token"], client, folder)
        ending.callback(_end_descendants, server)
        ending.callback(server.descendants)
        if workers:
            start_workers(client, workers, cpu_devices=cpu_devices)
        yield server


def start_workers(client: gpulayer.Client, count: int, *, cpu_devices: int) -> None:
    """Local workers that offer cpu devices.

    A machine's accelerators are one worker's: in their place each worker pretends one, which no job asks for.
    """
    accelerators = find_devices(cpu_devices=0)
    pretended = f"{accelerators[0].accelerator}:1" if accelerators else None
    client.ensure_local_workers(count, cpu_devices=cpu_devices, simulate_devices=pretended)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that goes away; what ended a moment ago may still be writing to it."""
    with tempfile.TemporaryDirectory(prefix="gpulayer-benchmark-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextlib.contextmanager
def environment(**variables: str | None) -> Iterator[None]:
    """Variables of this process for a while; None takes one away."""
    before = {name: os.environ.get(name) for name in variables}

    def put(values: dict[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    put(variables)
    try:
        yield
    finally:
        put(before)


def check_start(status: JobStatus, *, is_warm: bool) -> None:
    """See that the job's process started as its case says: under the other's name a figure would be a wrong one."""
    expected = "warm" if is_warm else "cold"
    starts = [(rank.start, rank.cold_reason) for task in status.tasks for rank in task.ranks]
    assert [start for start, _ in starts] == [expected], f"not one {expected} start, but {starts}"


def end_on_signals() -> None:
    """Let SIGTERM, and SIGHUP of a terminal that is closed, end a benchmark as Ctrl-C does: with its servers and workers."""

    def end(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


def raise_open_files(needed: int) -> None:
    """See that this process, and those that it starts, may hold so many files open.

    Raises:
        SystemExit: the system allows fewer.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise SystemExit(
            f"{needed} open files are needed and the system allows {hard}: raise it (ulimit -Hn {needed}), or use fewer --workers."
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _start(folder: Path, env: dict[str, str], extensions: tuple[str, ...]) -> tuple[subprocess.Popen[bytes], str]:
    token = secrets.token_hex(24)
    kept = {name: value for name, value in os.environ.items() if name not in _SETTINGS and not name.startswith(("JUPYTER", "JPY_"))}
    kept |= {
        "GPULAYER_HOME": str(folder / "home"),
        "GPULAYER_WORK_DIR": str(folder / "work"),
        "JUPYTER_TOKEN": token,
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "IPYTHONDIR": str(folder / "ipython"),
        # A template that imports PyTorch ahead of jobs makes a folder for what PyTorch would compile.
        "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR", str(folder / "compiled")),
        **env,
    }
    root = folder / "root"
    root.mkdir()
    argv = [
        *(sys.executable, "-m", "jupyter_server", "--allow-root", "--no-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0"),
        *(f"--ServerApp.root_dir={root}", "--ServerApp.max_body_size=536870912", *extensions),
    ]
    with (folder / "server.log").open("ab") as log:
        # A session of its own: Ctrl-C in the terminal is this process's to handle, which ends the server in order.
        process = subprocess.Popen(argv, env=kept, cwd=root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    return process, token


def _connection(folder: Path, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    pause, deadline = threading.Event(), time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for path in (folder / "home").glob("servers/*.json"):
            return dict(json.loads(path.read_text()))
        pause.wait(0.02)
        if b"could not be opened" in (folder / "server.log").read_bytes():
            break
    raise SystemExit(f"The Jupyter server did not come up:\n{(folder / 'server.log').read_text(errors='replace')[-4000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_descendants(server: Server) -> None:
    """Workers outlive their server by design, so they are ended here; keepers and jobs end with them."""
    ours = server.descendants()
    for one in ours:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.terminate()
    _, left = psutil.wait_procs(ours, timeout=STOP_SECONDS)
    for one in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(left, timeout=STOP_SECONDS)
