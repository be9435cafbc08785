"""`HOME/servers/<id>.json`: how kernels, terminals, workers and scripts of this user find the control plane.

The file holds a client token, so only its owner can read it. Reading it is the client's business.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from gpulayer._version import __version__
from gpulayer.errors import Unsupported
from gpulayer.protocol import PROTOCOL_VERSION

_RECORD_SUFFIX = ".issued"
_ANY_ADDRESS = {"": "127.0.0.1", "*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "localhost": "127.0.0.1", "::": "[::1]"}  # noqa: S104 (compared, not bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFile:
    """The file of one running server.

    Args:
        path: where it lies.
        token: the client token in it, to be revoked when the server stops.
    """

    path: Path
    token: str

    def remove(self) -> None:
        """Remove it, and the record of its token. Blocks for disk."""
        self.path.unlink(missing_ok=True)
        _record(self.path).unlink(missing_ok=True)


def server_url(serverapp: Any) -> str:
    """Where this machine reaches the server: its root with base URL and closing slash.

    Raises:
        Unsupported: the server listens on a UNIX socket.
    """
    if serverapp.sock:
        raise Unsupported(
            "GPUlayer can't be reached through a UNIX socket.",
            found=f"a Jupyter server that listens on {serverapp.sock}",
            fix="Start the Jupyter server with --ServerApp.ip=127.0.0.1 and a port.",
        )
    scheme = "https" if serverapp.certfile else "http"
    host = _ANY_ADDRESS.get(serverapp.ip, f"[{serverapp.ip}]" if ":" in serverapp.ip else serverapp.ip)
    return f"{scheme}://{host}:{serverapp.port}{serverapp.base_url.rstrip('/')}/"


def write_connection_file(home: Path, *, url: str, base_url: str, token: str) -> ConnectionFile:
    """Write the file for this process; readers never see a part of it. Blocks for disk."""
    folder = home / "servers"
    folder.mkdir(mode=0o700, exist_ok=True)
    server_id = secrets.token_hex(8)
    content = {
        "id": server_id,
        "url": url,
        "base_url": base_url,
        "token": token,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started_at": time.time(),
        "home": str(home),
        "version": __version__,
        "protocol": PROTOCOL_VERSION,
    }
    path = folder / f"{server_id}.json"
    unfinished = folder / f".{server_id}.tmp"
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file, indent=2)
    # A second name: clients remove the file of a server that was killed, and its token is still to be revoked then.
    os.link(unfinished, _record(path))
    unfinished.rename(path)
    return ConnectionFile(path=path, token=token)


def remove_stale_files(home: Path) -> list[str]:
    """Remove the files of servers of this machine that no longer run, and return their tokens. Blocks for disk."""
    tokens = []
    for record in (home / "servers").glob(f"*{_RECORD_SUFFIX}"):
        try:
            content = json.loads(record.read_text())
            pid, host, started_at, token = content["pid"], content["host"], content["started_at"], content["token"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            continue  # gone in the meantime, or written by something else: not ours to judge
        if host == socket.gethostname() and not _runs(pid, started_at):
            ConnectionFile(path=record.with_suffix(".json"), token=token).remove()
            tokens.append(token)
    return tokens


def _record(path: Path) -> Path:
    return path.with_suffix(_RECORD_SUFFIX)


def _runs(pid: int, started_at: float) -> bool:
    try:
        # A second of slack: the kernel derives process start times from its boot time, which is rounded.
        return bool(psutil.Process(pid).create_time() <= started_at + 1.0)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
