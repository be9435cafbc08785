"""What is known of an address by looking at it; nothing here asks a name server. Pure, for every layer."""

from __future__ import annotations

import ipaddress

LOOPBACK = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Whether the host, a name or an IP address, is this machine to itself; of names only `localhost` is known to be."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
