"""Which Jupyter servers host a home's control plane at this moment: `HOME/servers/*.json`, each checked, stale ones removed.

The server extension writes the files; here they are only read, and removed when their server is gone.
"""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from gpulayer.calls import CALLS
from gpulayer.client.http_transport import HttpTransport
from gpulayer.client.transport import Transport
from gpulayer.errors import GPUlayerError, ProtocolMismatch, ServerUnreachable
from gpulayer.protocol import PROTOCOL_VERSION, GetHealth, Health

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
    """A server file whose server answered."""

    file: ServerFile
    path: Path

    def transport(self, *, token: str | None = None, how: str = "") -> HttpTransport:
        """The way to it, with its client token unless another is given; `how` says how it was found."""
        description = f"Jupyter server at {self.file.root}" + (f" ({how})" if how else "")
        return HttpTransport(self.file.root, token or self.file.token, description=description)


def live_servers(home: Path) -> list[LiveServer]:
    """The home's servers that run, the youngest first."""
    found = [live for path in sorted((home / "servers").glob("*.json")) if (live := check_server_file(path)) is not None]
    return sorted(found, key=lambda live: live.file.started_at, reverse=True)


def check_server_file(path: Path) -> LiveServer | None:
    """The server that this file names, if it runs; else the file is removed and the answer is None."""
    file = read_server_file(path)
    if file is None:
        return None
    gone = _process_is_gone(file)
    if not gone and _answers(file):
        return LiveServer(file, path)
    # A process that runs but does not answer may just be starting; its file is left alone for that long.
    if gone or time.time() - file.started_at > START_SECONDS:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            path.unlink()
    return None


def read_server_file(path: Path) -> ServerFile | None:
    """The file's content, unchecked; None where it is missing or is no such file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ServerFile)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def rediscover_server(home: Path, token: str | None = None) -> Transport | None:
    """The way to the home's server after a restart, which may be elsewhere; None while there is none, or more than one.

    Args:
        home: whose server.
        token: a credential that outlives a restart, as a worker's does; else the token that the server left for clients.
    """
    servers = live_servers(home)
    return servers[0].transport(token=token, how=f"of the home {home}") if len(servers) == 1 else None


def check_protocol(health: Health, where: str) -> None:
    """Refuse a control plane whose protocol does not work with ours: versions N and N−1 do."""
    if abs(health.protocol - PROTOCOL_VERSION) > 1:
        older = "here" if health.protocol > PROTOCOL_VERSION else "there"
        raise ProtocolMismatch(
            f"The control plane at {where} speaks another version of the protocol.",
            asked=f"protocol {PROTOCOL_VERSION}",
            found=f"protocol {health.protocol}, GPUlayer {health.version}",
            fix=f"Install a newer GPUlayer {older}.",
        )


def _process_is_gone(file: ServerFile) -> bool:
    if not file.is_here:
        return False  # a home on a shared disk: another machine's process ids say nothing here
    try:
        process_started_at: float = psutil.Process(file.pid).create_time()  # type: ignore[no-untyped-call]
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False
    # A second of slack: the kernel derives start times from its boot time, which is rounded.
    return process_started_at > file.started_at + 1.0


def _answers(file: ServerFile) -> bool:
    """Whether a control plane answers at that address. One that is merely slow counts as there."""
    try:
        transport = HttpTransport(file.root, file.token)
    except GPUlayerError:
        return False
    try:
        transport.call(CALLS["get_health"], GetHealth(), timeout=HEALTH_SECONDS)
    except ServerUnreachable as error:
        return not error.details.get("refused") and "http_status" not in error.details
    except GPUlayerError:
        return False
    finally:
        transport.close()
    return True
