"""What a held call costs a real server in memory (ADR-0019: 30 KB each); that it is given back at once, see test_held_calls."""

import selectors
import socket
from pathlib import Path

import psutil
import pytest
from support.server import RunningServer, running_server

pytestmark = pytest.mark.e2e

CALLS = 400
MOST_BYTES_EACH = 30 * 1024


def _hold(server: RunningServer, count: int, after: int) -> list[socket.socket]:
    """So many held calls, each on a connection of its own, with the headers that our client sends."""
    port = int(server.url.rstrip("/").rpartition(":")[2])
    request = (
        f"GET /gpulayer/v1/events?after={after}&wait=30 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept-Encoding: identity\r\n"
        f"User-Agent: gpulayer/0.1.0\r\nAuthorization: Bearer {server.client_token}\r\n\r\n"
    ).encode()
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    for connection in connections:
        connection.sendall(request)
    return connections


def _answered(connections: list[socket.socket]) -> int:
    """On how many of them something has come back, were it a refusal or an end."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        return len(selector.select(0))


def _bytes_used(server: RunningServer) -> int:
    # Asked behind them: when it is answered, what came before is held.
    for _ in range(3):
        assert server.request("GET", "gpulayer/v1/health").status_code == 200
    return int(psutil.Process(server.pid).memory_full_info().uss)


def test_a_held_call_is_small(tmp_path: Path) -> None:
    with running_server(tmp_path / "home", extra=(f"--GPUlayerExtension.max_held_calls={2 * CALLS}",)) as server:
        after = server.request("GET", "gpulayer/v1/events?limit=100000").json()["next"] + 1000
        warm = _hold(server, 50, after)
        before = _bytes_used(server)
        held = _hold(server, CALLS, after)
        used = _bytes_used(server)
        assert _answered([*warm, *held]) == 0
        assert 0 < (used - before) / CALLS <= MOST_BYTES_EACH
        for connection in [*warm, *held]:
            connection.close()
