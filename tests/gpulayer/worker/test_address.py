"""Which address a worker advertises."""

from __future__ import annotations

import pytest

from gpulayer.errors import ServerUnreachable
from gpulayer.worker.address import address_towards


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:8888/", "http://localhost:8888/user/x/", "http://[::1]:8888/"])
def test_on_the_servers_own_machine_it_is_loopback(url: str | None) -> None:
    assert address_towards(url) == "127.0.0.1"


def test_a_name_that_does_not_resolve_is_named() -> None:
    with pytest.raises(ServerUnreachable, match=r"no-such-host\.invalid"):
        address_towards("http://no-such-host.invalid:8888/")
