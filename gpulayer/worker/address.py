"""The address that a worker advertises to its peers: the one from which it reaches the control plane."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from gpulayer.errors import ServerUnreachable

LOOPBACK = "127.0.0.1"


def address_towards(url: str | None) -> str:
    """This machine's address on the way to the server; loopback for a server on loopback, or in this process (None).

    Raises:
        ServerUnreachable: there is no way there; names what was tried.
    """
    if url is None:
        return LOOPBACK
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    failures = []
    try:
        candidates = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise ServerUnreachable(f"The control plane's name can't be resolved: {error}.", asked=host, fix="Check the address.") from error
    for family, kind, protocol, _, target in candidates:
        # Connecting a datagram socket sends nothing: it only asks the kernel which way it would go.
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.connect(target)
            except OSError as error:
                failures.append(f"{target[0]}: {error}")
                continue
            found = str(probe.getsockname()[0])
            return LOOPBACK if ipaddress.ip_address(found.split("%")[0]).is_loopback else found
    raise ServerUnreachable("This machine has no route to the control plane.", asked=url, found="; ".join(failures), fix="Give --address.")
