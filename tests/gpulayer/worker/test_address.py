"""Which address a worker advertises. Machines with several addresses are network namespaces (simulated)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from support.namespaces import Host, Lan, lan

from gpulayer.errors import InvalidSpec, ServerUnreachable
from gpulayer.worker.address import address_towards, own_address, ways_to

CALL = """
import json, sys
from gpulayer.errors import GPUlayerError
from gpulayer.worker import address
def answer(word):
    try: return getattr(address, sys.argv[1])(word)
    except GPUlayerError as error: return str(error)
print(json.dumps([answer(word) for word in sys.argv[2:]]))
"""
LISTEN = "import socket\nserver = socket.create_server(('10.77.0.1', 8888))\nprint('listening', flush=True)\nwhile True: server.accept()"


@dataclass
class Place:
    """A machine that listens at its IPv4 address alone, and one beside it."""

    lan: Lan
    beside: Host


def call(host: Host, function: str, *words: str) -> list[str]:
    """What a function of `gpulayer.worker.address` says there of each word, or what it refuses it with."""
    answers: list[str] = json.loads(host.python(CALL, function, *words))
    return answers


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with lan(tmp_path_factory.mktemp("lan")) as made:
        server = made.host("control", "10.77.0.1/24", "fd00::1/64")
        server.start(sys.executable, "-c", LISTEN).wait_for("listening")
        names = "fd00::1 control\n10.77.0.1 control\n127.0.1.1 beside\n127.0.1.1 beside.lan\n10.77.0.2 beside.lan\n"
        yield Place(made, made.host("beside", "10.77.0.2/24", "fd00::2/64", hosts=names))


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:8888/", "http://localhost:8888/user/x/", "http://[::1]:8888/"])
def test_on_the_servers_own_machine_it_is_loopback(url: str | None) -> None:
    assert address_towards(url) == "127.0.0.1"


def test_a_name_that_does_not_resolve_is_named() -> None:
    with pytest.raises(ServerUnreachable, match=r"no-such-host\.invalid"):
        address_towards("http://no-such-host.invalid:8888/")


def test_a_way_says_both_ends_and_the_interface() -> None:
    (way,) = ways_to("http://127.0.0.1:8888/")
    assert way.is_loopback
    assert str(way).startswith("127.0.0.1 port 8888 from 127.0.0.1 (lo")


def test_of_several_addresses_it_is_the_one_from_which_the_server_answers(place: Place) -> None:
    """The name stands for an IPv6 address as well, which comes first, and at which nobody listens."""
    answering, silent = call(place.beside, "address_towards", "http://control:8888/", "http://control:1/")
    assert answering == "10.77.0.2"
    assert silent in ("10.77.0.2", "fd00::2")  # nobody answers at either: whatever the machine prefers


def test_an_ipv4_address_in_ipv6s_clothes_is_the_ipv4_address(place: Place) -> None:
    assert call(place.beside, "address_towards", "http://[::ffff:10.77.0.1]:8888/") == ["10.77.0.2"]


def test_a_link_local_address_serves_the_own_host_only(place: Place) -> None:
    host = place.lan.host("link-only", "fe80::7/64")
    assert call(host, "address_towards", "http://[fe80::1%eth0]:8888/") == ["127.0.0.1"]


def test_a_temporary_ipv6_address_is_not_advertised(place: Place) -> None:
    private = "/proc/sys/net/ipv6/conf/eth0"
    host = place.lan.host("private", setup=[f"echo 0 > {private}/accept_dad", f"echo 2 > {private}/use_tempaddr"])
    host.run("ip", "address", "add", "fd00::3/64", "dev", "eth0", "mngtmpaddr", "nodad")
    by_itself = (
        "import socket; one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); one.connect(('fd00::1', 1)); print(one.getsockname()[0])"
    )
    assert host.python(by_itself).strip() != "fd00::3"
    assert call(host, "address_towards", "http://[fd00::1]:8888/") == ["fd00::3"]


def test_without_a_route_it_says_what_was_tried_from_where_and_what_to_do(place: Place) -> None:
    (refusal,) = call(place.lan.host("stray", "192.168.5.2/24"), "address_towards", "http://10.77.0.1:8888/user/me/")
    assert "10.77.0.1 port 8888: Network is unreachable, from 192.168.5.2 (eth0)" in refusal
    assert "`ssh -N -R 8888:127.0.0.1:8888 HERE`; then --server http://127.0.0.1:8888/user/me." in refusal
    (refusal,) = call(place.lan.host("bare"), "address_towards", "http://10.77.0.1:8888/")
    assert "from no address but loopback's" in refusal


def test_a_given_address_is_one_that_an_interface_here_has(place: Place) -> None:
    given = ("10.77.0.2", "fd00::2", "[fd00::2]", "beside.lan", "127.0.0.1", "::1")
    assert call(place.beside, "own_address", *given) == ["10.77.0.2", "fd00::2", "fd00::2", "10.77.0.2", "127.0.0.1", "127.0.0.1"]


def test_a_given_address_at_which_others_can_not_come_is_refused(place: Place) -> None:
    for refusal, why in zip(
        call(place.beside, "own_address", "10.77.0.1", "beside", "unheard-of"),
        ("No interface of this machine has the address", "means loopback here", "can't be resolved"),
        strict=True,
    ):
        assert why in refusal
        assert "10.77.0.2 (eth0), fd00::2 (eth0)" in refusal


def test_a_given_address_of_nobody_is_refused_here_too() -> None:
    with pytest.raises(InvalidSpec, match=r"--address 192\.0\.2\.1"):
        own_address("192.0.2.1")
