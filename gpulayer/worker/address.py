"""The address that a worker advertises to its peers: the one from which it reaches the control plane, or one that it was given.

Nothing of it is read from the machine's own name, which may resolve to loopback, or nowhere. Runs in the worker.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import psutil

from gpulayer.addresses import LOOPBACK
from gpulayer.errors import InvalidSpec, ServerUnreachable
from gpulayer.runtime.rank_environment import find_interface

TRIAL_SECONDS = 5.0
"""How long one of several ways to the server may take to be tried."""
# linux/in6.h; Python has no names for them.
_IPV6_ADDR_PREFERENCES = 72
_IPV6_PREFER_SRC_PUBLIC = 2


@dataclass(frozen=True, slots=True)
class Way:
    """A way to the server: which of its addresses, and from which one here."""

    family: int
    target: tuple[Any, ...]
    source: str

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.source).is_loopback

    def __str__(self) -> str:
        interface = find_interface(self.source)
        return f"{self.target[0]} port {self.target[1]} from {self.source}" + (f" ({interface})" if interface is not None else "")


def address_towards(url: str | None) -> str:
    """This machine's address on the way to the server; loopback where others can't use that one.

    That is so for a server on loopback, or in this process (None), and for one that is reached by an IPv6 link-local address.

    Raises:
        ServerUnreachable: there is no way there; names what was tried, and from where.
    """
    if url is None:
        return LOOPBACK
    ways = ways_to(url)
    chosen = ways[0]
    if len({way.source for way in ways}) > 1:
        # The server's name stands for several addresses, and it need not listen at the first. If it answers at none (it is
        # away, or a proxy stands between), the first is as good as any.
        chosen = next((way for way in ways if _answers(way)), chosen)
    found = ipaddress.ip_address(chosen.source)
    # A link-local IPv6 address means something only together with an interface, which has another name on the peer.
    return LOOPBACK if found.is_loopback or _is_of_one_link(found) else chosen.source


def ways_to(url: str) -> list[Way]:
    """Every way to the server that this machine knows of, the best first; at least one. Nothing is sent.

    Raises:
        ServerUnreachable: there is none.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        candidates = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise ServerUnreachable(
            f"The control plane's name can't be resolved: {error}.",
            asked=host,
            fix="Check the name, add it to /etc/hosts, or give the server's IP address instead.",
        ) from error
    ways, failures = [], []
    for family, kind, protocol, _, target in candidates:
        with socket.socket(family, kind, protocol) as probe:
            if family == socket.AF_INET6:
                # By default the kernel takes a temporary address (RFC 8981) where there is one; it is gone after some days.
                with contextlib.suppress(OSError):
                    probe.setsockopt(socket.IPPROTO_IPV6, _IPV6_ADDR_PREFERENCES, _IPV6_PREFER_SRC_PUBLIC)
            try:
                # Connecting a datagram socket sends nothing: it only asks the kernel which way it would go.
                probe.connect(target)
            except OSError as error:
                failures.append(f"{target[0]} port {port}: {error.strerror or error}")
            else:
                ways.append(Way(family, target, _plain(probe.getsockname()[0])))
    if not ways:
        raise ServerUnreachable(
            "This machine has no route to the control plane.",
            asked=url,
            found=f"{'; '.join(failures)}, from {own_addresses()}",
            fix=f"Bring this machine into a network where the server can be reached. {tunnel_to(url)}",
        )
    return sorted(ways, key=lambda way: _is_of_one_link(ipaddress.ip_address(way.source)))


def tunnel_to(url: str) -> str:
    """What to do where the server's address can't be reached from here, for people."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    here = f"{parts.scheme}://127.0.0.1:{port}{parts.path.rstrip('/')}"
    return f"Or bring the server here by a tunnel: on its machine, `ssh -N -R {port}:127.0.0.1:{port} HERE`; then --server {here}."


def own_address(given: str) -> str:
    """The number of the address that a person gave for this machine; ranks listen at it.

    Raises:
        InvalidSpec: it is not this machine's, or others can't reach this machine at it.
    """
    name = given.strip().removeprefix("[").removesuffix("]")
    try:
        number = ipaddress.ip_address(name)
    except ValueError:
        found = _resolved(given, name)
    else:
        if number.is_loopback:
            return LOOPBACK
        found = [str(number)]
    held = next((address for address in found if find_interface(address) is not None), None)
    if held is None:
        raise _refused(given, "No interface of this machine has the address that the worker is to advertise.", ", ".join(found))
    return held


def _resolved(given: str, name: str) -> list[str]:
    """What a name means besides loopback."""
    try:
        found = list(dict.fromkeys(str(target[0]) for *_, target in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)))
    except (OSError, UnicodeError) as error:
        raise _refused(given, "The name that is to be this worker's address can't be resolved.", str(error)) from error
    elsewhere = [address for address in found if not ipaddress.ip_address(address).is_loopback]
    if not elsewhere:
        raise _refused(given, "The name that is to be this worker's address means loopback here.", f"{', '.join(found)}, as in /etc/hosts")
    return elsewhere


def own_addresses() -> str:
    """The addresses at which this machine can be reached, for people."""
    interfaces: dict[str, list[Any]] = psutil.net_if_addrs()  # type: ignore[no-untyped-call]
    found = [
        f"{entry.address} ({interface})"
        for interface, entries in sorted(interfaces.items())
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
        and not (number := ipaddress.ip_address(entry.address)).is_loopback
        and not number.is_link_local
    ]
    return ", ".join(found) or "no address but loopback's"


def _plain(address: str) -> str:
    """An IPv4 address in IPv6's clothes is the IPv4 address."""
    number = ipaddress.ip_address(address)
    mapped = number.ipv4_mapped if isinstance(number, ipaddress.IPv6Address) else None
    return str(mapped or number)


def _is_of_one_link(number: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return number.version == 6 and number.is_link_local


def _answers(way: Way) -> bool:
    with socket.socket(way.family, socket.SOCK_STREAM) as trial:
        trial.settimeout(TRIAL_SECONDS)
        try:
            trial.connect(way.target)
        except OSError:
            return False
        return True


def _refused(given: str, what: str, found: str) -> InvalidSpec:
    return InvalidSpec(what, asked=f"--address {given}", found=found, fix=f"Give the number of one that it has: {own_addresses()}.")
