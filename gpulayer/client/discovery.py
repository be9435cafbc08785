"""Which Jupyter servers host a home's control plane at this moment: `HOME/servers/*.json`, each checked, stale ones removed.

The server extension writes the files; here they are only read, and removed when their server is gone.
"""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psutil

from gpulayer.addresses import is_loopback
from gpulayer.calls import CALLS
from gpulayer.client.http_transport import HttpTransport
from gpulayer.client.transport import Transport
from gpulayer.errors import GPUlayerError, ProtocolMismatch
from gpulayer.protocol import PROTOCOL_VERSION, GetHealth, Health, works_with

HEALTH_SECONDS = 3.0
"""How long a server on this machine may take to say that it is well."""

START_SECONDS = 60.0
"""How long a server may take between writing its file and answering."""


class ServerFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of `HOME/servers/`; unknown fields are ignored."""

    id: str
    url: str
    token: str
    pid: int
    started_at: float
    home: str
    base_url: str = "/"
    host: str | None = None
    version: str = ""
    protocol: int = PROTOCOL_VERSION

    @property
    def root(self) -> str:
        """The address that a transport takes: base_url included, once."""
        url, base = self.url.rstrip("/") + "/", self.base_url.strip("/")
        return url if not base or url.endswith(f"/{base}/") else f"{url}{base}/"

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine."""
        return self.host in (None, socket.gethostname())


@dataclass(frozen=True, slots=True)
class LiveServer:
    """A server that is there; `health` is None where it did not say that it is well, and whoever calls it learns why."""

    file: ServerFile
    path: Path
    health: Health | None = None

    def transport(self, *, token: str | None = None) -> HttpTransport:
        """The way to it, with its client token unless another is given."""
        return HttpTransport(self.file.root, token or self.file.token, description=f"Jupyter server at {self.file.root}")


def live_servers(home: Path) -> list[LiveServer]:
    """The home's servers that are there, the youngest first."""
    found = [live for path in sorted((home / "servers").glob("*.json")) if (live := check_server_file(path)) is not None]
    return sorted(found, key=lambda live: live.file.started_at, reverse=True)


def check_server_file(path: Path) -> LiveServer | None:
    """The server that this file names, if it is there; else None, and the file is removed.

    Only two things say that a server is gone: its process is, or nobody listens at its address. A server that answers
    with an error, slowly, or with a certificate that is not trusted here is there.
    """
    file = read_server_file(path)
    if file is None:
        return None
    if process_runs(file.pid, file.started_at) or not file.is_here:  # another machine's process ids say nothing here
        health, error = _ask_health(file)
        if health is not None:
            return LiveServer(file, path, health)
        if not file.is_here and is_loopback(urlsplit(file.root).hostname or ""):
            return None  # a home on a shared disk: who answers or refuses at our loopback is not that server
        if error is None or not error.details.get("refused"):
            return LiveServer(file, path)
        # A process that runs and does not listen may just be starting; its file is left alone for that long.
        if time.time() - file.started_at <= START_SECONDS:
            return None
    with contextlib.suppress(FileNotFoundError, PermissionError):
        path.unlink()
    return None


def read_server_file(path: Path) -> ServerFile | None:
    """The file's content, unchecked; None where it is missing or is no such file."""
    try:
        file = msgspec.json.decode(path.read_bytes(), type=ServerFile)
        parts = urlsplit(file.url)
    except (OSError, ValueError):  # msgspec's and urllib's complaints are ValueErrors
        return None
    return file if parts.scheme in ("http", "https") and parts.hostname else None


def rediscover_server(home: Path, token: str | None = None, *, home_id: str | None = None) -> Transport | None:
    """The way to the home's server after a restart, which may be elsewhere; None while there is none, or more than one.

    Args:
        home: whose server.
        token: a credential that outlives a restart, as a worker's does; else the token that the server left for clients.
        home_id: as `Health.home_id`; a server that does not say that it hosts this home is passed over, and sees no token
            but the one that it left itself.
    """
    servers = live_servers(home)
    if len(servers) != 1:
        return None
    (live,) = servers
    if home_id is not None and (live.health is None or live.health.home_id != home_id):
        return None
    return live.transport(token=token)


def check_protocol(health: Health, where: str) -> None:
    """Refuse a control plane whose protocol does not work with ours: versions N and N−1 do."""
    if not works_with(health.protocol):
        older = "here" if health.protocol > PROTOCOL_VERSION else "there"
        raise ProtocolMismatch(
            f"The control plane at {where} speaks another version of the protocol.",
            asked=f"protocol {PROTOCOL_VERSION}",
            found=f"protocol {health.protocol}, GPUlayer {health.version}",
            fix=f"Install a newer GPUlayer {older}.",
        )


def process_runs(pid: int, since: float) -> bool:
    """Whether this machine's process of this id runs, and is the one that ran at that time (UTC seconds)."""
    try:
        started_at: float = psutil.Process(pid).create_time()  # type: ignore[no-untyped-call]
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    # A second of slack: the kernel derives start times from its boot time, which is rounded.
    return started_at <= since + 1.0


def _ask_health(file: ServerFile) -> tuple[Health | None, GPUlayerError | None]:
    transport = HttpTransport(file.root, file.token)
    try:
        health: Health = transport.call(CALLS["get_health"], GetHealth(), timeout=HEALTH_SECONDS)
        return health, None
    except GPUlayerError as error:
        return None, error
    finally:
        transport.close()
