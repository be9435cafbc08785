"""Which control plane a person means: `connect()`, and the named targets of `gpulayer target`.

The order is the docs' (Jobs, "Which control plane"): argument, GPULAYER_URL, default target, the Jupyter server
this process belongs to, the one live server of this home, embedded. What is named and does not answer is an error, never
replaced by the next.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpulayer import settings
from gpulayer.errors import InvalidSpec, ServerUnreachable, SeveralServers

if TYPE_CHECKING:
    from gpulayer.client.client import Client
    from gpulayer.client.discovery import LiveServer, ServerFile

LOCAL, CLUSTER = "local", "cluster"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A control plane that a person gave a name."""

    url: str
    token: str | None = None


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """What `gpulayer target` keeps in `targets.json`, readable by its owner only."""

    targets: dict[str, Target] = {}
    default: str | None = None


def connect(target: str | None = None, *, token: str | None = None) -> Client:
    """Find the control plane and connect to it; `client.description` says which one it is and how it was found.

    Args:
        target: `local` (this process's embedded control plane), `cluster` (the configured one, never embedded), the name
            of a target, or an address. Without it, the first that is there: GPULAYER_URL, the default target, this
            process's Jupyter server, the one live server of this home, else `local`.
        token: client token for an address.

    Raises:
        ServerUnreachable: what was named does not answer, or `cluster` and none is configured.
        SeveralServers: several Jupyter servers of this home run, and none was named.
        NotAuthenticated: the server does not know the token.
        InvalidSpec: there is no such target.
    """
    if target == LOCAL:
        return _embedded("target local")
    if target is not None and target != CLUSTER:
        if "://" in target:
            return _by_address(target, token, "given address")
        return _by_name(target, token, "target")
    found = _configured(token)
    if found is not None:
        return found
    if target == CLUSTER:
        raise ServerUnreachable(
            "No control plane is configured or running, and target 'cluster' is never this process itself.",
            found=f"no GPULAYER_URL, no default target, no Jupyter server of the home {settings.home()}",
            fix="Start JupyterLab, or set GPULAYER_URL or `gpulayer target use NAME`; target 'local' runs here.",
        )
    return _embedded("no server found")


def _configured(token: str | None) -> Client | None:
    url = settings.server_url()
    if url is not None:
        return _by_address(url, token, "from GPULAYER_URL")
    default = load_targets().default
    if default is not None:
        return _by_name(default, token, "default target")
    return _by_server_file()


def _by_name(name: str, token: str | None, how: str) -> Client:
    if name == LOCAL:
        return _embedded(f"{how} local")
    known = load_targets().targets
    if name not in known:
        raise InvalidSpec(
            "There is no target of this name.",
            asked=f"target={name!r}",
            found=", ".join(sorted(known)) or "no named targets",
            fix=f"Use 'local', 'cluster', an address, or add it: gpulayer target add {name} URL.",
        )
    return _by_url(known[name].url, token or known[name].token, f"{how} {name!r}")


def _by_address(address: str, token: str | None, how: str) -> Client:
    """By what a person gave: it may be a page of the server, with a token in it."""
    from gpulayer.client.server_address import named_root

    root, in_address = named_root(address)
    return _by_url(root, token or _known_token(root) or in_address, how)


def _by_url(url: str, token: str | None, how: str) -> Client:
    from gpulayer.client.client import Client
    from gpulayer.client.discovery import rediscover_server
    from gpulayer.client.http_transport import HttpTransport

    transport = HttpTransport(url, token)
    file = _server_file_of(url)
    if file is not None:
        home = Path(file.home)
        return _checked(Client(transport, how=how, rediscover=lambda: rediscover_server(home), is_local=file.is_here), transport.url)
    return _checked(Client(transport, how=how), transport.url)


def _by_server_file() -> Client | None:
    """The Jupyter server that this process descends from, else the only live one of this home."""
    from gpulayer.client.discovery import check_server_file, live_servers

    inherited = settings.connection_file()
    if inherited is not None:
        live = check_server_file(inherited)
        if live is not None:
            return _of_server(live, "from GPULAYER_CONNECTION_FILE")
    servers = live_servers(settings.home())
    if len(servers) > 1:
        raise SeveralServers(
            f"{len(servers)} Jupyter servers of this home run, and none was named.",
            found=", ".join(f"{live.file.root} (pid {live.file.pid})" for live in servers),
            fix="Name one: GPULAYER_URL, connect(URL), or --target URL.",
            details={"urls": [live.file.root for live in servers]},
        )
    return _of_server(servers[0], f"the one server of the home {settings.home()}") if servers else None


def _of_server(live: LiveServer, how: str) -> Client:
    from gpulayer.client.client import Client
    from gpulayer.client.discovery import rediscover_server

    home = Path(live.file.home)
    client = Client(live.transport(), how=how, rediscover=lambda: rediscover_server(home), is_local=live.file.is_here)
    return _checked(client, live.file.root)


def _checked(client: Client, where: str) -> Client:
    from gpulayer.client.discovery import check_protocol

    try:
        check_protocol(client.health(), where)
    except BaseException:
        client.close()
        raise
    return client


def _embedded(how: str) -> Client:
    from gpulayer.embedded import EmbeddedControlPlane

    return EmbeddedControlPlane.open(settings.home()).client(how)


def _known_token(url: str) -> str | None:
    """The token that belongs to this address, and only to it: tokens are not shown to other servers."""
    wanted = url.rstrip("/")
    configured = configured_token(url)
    if configured is not None:
        return configured
    for target in load_targets().targets.values():
        if target.token and target.url.rstrip("/") == wanted:
            return target.token
    file = _server_file_of(url)
    return file.token if file is not None else None


def configured_token(url: str) -> str | None:
    """GPULAYER_TOKEN, where this is the address that it is for: GPULAYER_URL's."""
    from gpulayer.client.server_address import server_root

    configured = settings.server_url()
    return settings.server_token() if configured is not None and server_root(configured)[0].rstrip("/") == url.rstrip("/") else None


def _server_file_of(url: str) -> ServerFile | None:
    """The file that this home's server at that address left, if there is one."""
    from gpulayer.client.discovery import read_server_file

    files = (read_server_file(path) for path in (settings.home() / "servers").glob("*.json"))
    return next((file for file in files if file is not None and file.root.rstrip("/") == url.rstrip("/")), None)


# ---- named targets


def load_targets() -> Targets:
    """The named targets of this user.

    Raises:
        InvalidSpec: the file is damaged.
    """
    path = _targets_file()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Targets)
    except FileNotFoundError:
        return Targets()
    except msgspec.DecodeError as error:
        raise InvalidSpec("The file of targets can't be read.", asked=str(path), found=str(error), fix="Repair or remove it.") from error


def add_target(name: str, url: str, token: str | None) -> None:
    """Keep a control plane under a name; one of that name is replaced."""
    if name in (LOCAL, CLUSTER) or not _NAME.fullmatch(name):
        raise InvalidSpec(
            "A target's name is up to 40 letters, digits, '.', '_' and '-', and neither 'local' nor 'cluster'.", asked=f"name={name!r}"
        )
    if not url.startswith(("http://", "https://")):
        raise InvalidSpec("An address starts with http:// or https://.", asked=f"url={url!r}")
    kept = load_targets()
    _store(msgspec.structs.replace(kept, targets={**kept.targets, name: Target(url=url, token=token)}))


def use_target(name: str | None) -> None:
    """Make it the default; None: none is."""
    kept = load_targets()
    if name is not None and name != LOCAL:
        _must_know(kept, name)
    _store(msgspec.structs.replace(kept, default=name))


def remove_target(name: str) -> None:
    """Forget it; if it was the default, there is none afterwards."""
    kept = load_targets()
    _must_know(kept, name)
    left = {known: target for known, target in kept.targets.items() if known != name}
    _store(Targets(targets=left, default=None if kept.default == name else kept.default))


def _must_know(kept: Targets, name: str) -> None:
    if name not in kept.targets:
        raise InvalidSpec("There is no target of this name.", asked=name, found=", ".join(sorted(kept.targets)) or "no named targets")


def _targets_file() -> Path:
    return settings.config_dir() / "targets.json"


def _store(targets: Targets) -> None:
    path = _targets_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(f".targets-{os.getpid()}.tmp")
    try:
        # It holds tokens: nobody else may read it, not even for a moment.
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(targets), indent=2))
        unfinished.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()
