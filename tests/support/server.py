"""A real Jupyter server with the extension on, as a process of its own, for tests.

The extension is the one that the installed configuration enables; nothing in here reaches into it. Everything that the
server starts (kernels, local workers) is found by descent and ended with it.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

_WITHOUT_LAB = '--ServerApp.jpserver_extensions={"jupyterlab": False, "jupyter_lsp": False, "notebook_shim": False, "notebook": False}'
"""They take seconds of a start, and what most tests need is the server alone."""
_OURS = ("GPULAYER_URL", "GPULAYER_TOKEN", "GPULAYER_CONNECTION_FILE", "GPULAYER_HOME", "GPULAYER_WORK_DIR")


@dataclass
class RunningServer:
    """One Jupyter server process.

    Args:
        home: the control plane's home; `restart` opens it again.
        token: Jupyter's own token; as a bearer token it is good for every client call, too.
    """

    home: Path
    state_dir: Path
    base_url: str
    root_dir: Path
    extra: tuple[str, ...]
    env: dict[str, str]
    module: tuple[str, ...] = ("jupyter_server",)
    port: int = 0  # 0: a free one at each start
    token: str = field(default_factory=lambda: secrets.token_hex(24))
    process: subprocess.Popen[bytes] | None = None
    connection: dict[str, Any] = field(default_factory=dict)
    connection_file: Path = Path()
    _descendants: list[psutil.Process] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The server's root with its base URL and a closing slash."""
        return str(self.connection["url"])

    @property
    def client_token(self) -> str:
        """The GPUlayer client token of the connection file."""
        return str(self.connection["token"])

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log_file(self) -> Path:
        return self.state_dir / "server.log"

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def request(self, method: str, path: str, *, token: str | None = None, **kwargs: Any) -> httpx.Response:
        """One request to a path below the server's root, with Jupyter's token unless another is named."""
        headers = {"Authorization": f"Bearer {token or self.token}", **kwargs.pop("headers", {})}
        with httpx.Client(timeout=kwargs.pop("timeout", 60.0), trust_env=False) as client:
            return client.request(method, self.url + path.lstrip("/"), headers=headers, **kwargs)

    def start(self, *, timeout: float = 60.0) -> None:
        """Start the process and return once the control plane answers."""
        self.state_dir.mkdir(parents=True, exist_ok=True)
        self.root_dir.mkdir(parents=True, exist_ok=True)
        env = {name: value for name, value in os.environ.items() if name not in _OURS and not name.startswith(("JUPYTER", "JPY_"))}
        env |= {
            "GPULAYER_HOME": str(self.home),
            "GPULAYER_WORK_DIR": str(self.state_dir / "work"),
            "JUPYTER_TOKEN": self.token,
            "JUPYTER_CONFIG_DIR": str(self.state_dir / "config"),
            "JUPYTER_DATA_DIR": str(self.state_dir / "data"),
            "JUPYTER_RUNTIME_DIR": str(self.state_dir / "runtime"),
            "IPYTHONDIR": str(self.state_dir / "ipython"),
            **self.env,
        }
        argv = [
            *(sys.executable, "-m", *self.module, "--allow-root", "--no-browser"),
            *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={self.port}", f"--ServerApp.base_url={self.base_url}"),
            *(f"--ServerApp.root_dir={self.root_dir}", *self.extra),
        ]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                argv, env=env, cwd=self.root_dir, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._wait_until_it_answers(timeout)

    def _wait_until_it_answers(self, timeout: float) -> None:
        assert self.process is not None
        pause, deadline = threading.Event(), time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}:\n{self.log()[-4000:]}")
            for path in self.home.glob("servers/*.json"):
                connection = json.loads(path.read_text())
                if connection["pid"] == self.process.pid:
                    self.connection, self.connection_file = connection, path
                    answer = self.request("GET", "gpulayer/v1/health", token=self.client_token)
                    assert answer.status_code == 200, answer.text
                    return
            pause.wait(0.02)
        raise RuntimeError(f"no connection file within {timeout} s:\n{self.log()[-4000:]}")

    def _remember_descendants(self) -> None:
        assert self.process is not None
        try:
            self._descendants += psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            pass

    def kill(self) -> None:
        """SIGKILL to the server alone: its kernels and workers live on."""
        assert self.process is not None
        self._remember_descendants()
        self.process.kill()
        self.process.wait(10)

    def stop(self, *, timeout: float = 15.0) -> int:
        """SIGTERM, as a service manager sends it; its workers live on. Returns the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self._remember_descendants()
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
                raise RuntimeError(f"the server did not stop within {timeout} s:\n{self.log()[-4000:]}") from None
        return int(self.process.returncode)

    def restart(self) -> None:
        """End the server if it still runs, and start another one on the same home (on another port)."""
        self.stop()
        self.start()

    def end_everything(self) -> None:
        """End the server and what it started."""
        try:
            if self.process is not None:
                self.stop()
        finally:
            # A worker of ours that saw its server go may have started others of its own in the meantime.
            ours = [process for process in self._descendants if process.is_running()]
            for process in list(ours):
                try:
                    ours += process.children(recursive=True)
                except psutil.NoSuchProcess:
                    pass
            for process in ours:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    pass
            psutil.wait_procs(ours, timeout=10)


@contextmanager
def running_server(
    home: Path,
    *,
    base_url: str = "/",
    extra: Sequence[str] = (),
    lab: bool = False,
    root_dir: Path | None = None,
    env: dict[str, str] | None = None,
    module: Sequence[str] = ("jupyter_server",),
    port: int = 0,
) -> Iterator[RunningServer]:
    """A Jupyter server with the extension on, on a free loopback port, with its own Jupyter folders beside `home`.

    Args:
        home: made by the server if it is missing.
        base_url: as in `--ServerApp.base_url`.
        extra: further arguments of `jupyter server`.
        lab: with JupyterLab's extensions.
        root_dir: where its notebooks lie; a folder beside `home` by default.
        env: further environment variables.
        module: what `python -m` runs, with its first arguments; it ends in Jupyter Server's own start.
        port: that it keeps across restarts; 0 means a free one at each start.
    """
    state_dir = home.parent / f"{home.name}-server"
    server = RunningServer(
        home=home,
        state_dir=state_dir,
        base_url=base_url,
        root_dir=root_dir or state_dir / "root",
        extra=(*(() if lab else (_WITHOUT_LAB,)), *extra),
        env=env or {},
        module=tuple(module),
        port=port,
    )
    try:
        server.start()
        yield server
    finally:
        server.end_everything()
