"""What goes through httpx: proxies of the environment, and addresses that want more than a connection."""

from __future__ import annotations

import threading

import pytest
from support.client import Answer, free_port, health, scripted_server
from support.raw_server import raw_server, read_request

from gpulayer.calls import CALLS
from gpulayer.client.direct import DirectExchange
from gpulayer.client.http_transport import HttpTransport
from gpulayer.client.proxied import ProxiedExchange
from gpulayer.errors import Interrupted, ServerUnreachable, UnknownArtifact, encode_error
from gpulayer.protocol import GetHealth

AWAY = "http://hub.example.invalid:8888/base/"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_calls_to_a_server_elsewhere_go_through_the_environments_proxy(monkeypatch):
    with scripted_server(lambda request: Answer(body=health())) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        transport = HttpTransport(AWAY, "t")
        assert transport.call(CALLS["get_health"], GetHealth()) == health()
        transport.close()
    (request,) = proxy.requests
    assert request.path == "/base/gpulayer/v1/health"
    assert request.headers["host"] == "hub.example.invalid:8888"
    assert request.headers["authorization"] == "Bearer t"


def test_files_go_through_it_as_well(monkeypatch, tmp_path):
    data = b"content" * 1000
    with scripted_server(lambda request: Answer(body=data)) as proxy:
        monkeypatch.setenv("all_proxy", proxy.url)
        transport = HttpTransport(AWAY, "t")
        assert isinstance(transport._exchange, ProxiedExchange)
        with transport._exchange.stream(transport._request("GET", "/x", None, None, 5.0)) as answer:
            assert b"".join(answer.pieces) == data
        transport.close()
    with scripted_server(lambda request: Answer(status=404, body=encode_error(UnknownArtifact("None.")))) as proxy:
        monkeypatch.setenv("all_proxy", proxy.url)
        transport = HttpTransport(AWAY, "t")
        with pytest.raises(UnknownArtifact):
            transport.get_artifact("0" * 64, tmp_path / "out")
        transport.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_this_machines_own_servers_are_reached_without_it(monkeypatch, host):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}/")
    with scripted_server(lambda request: Answer(body=health())) as server:
        transport = HttpTransport(server.url.replace("127.0.0.1", host), "t")
        assert transport.call(CALLS["get_health"], GetHealth()) == health()
        assert isinstance(transport._exchange, DirectExchange)
        transport.close()


def test_without_a_proxy_a_server_elsewhere_is_reached_directly():
    transport = HttpTransport(AWAY, "t")
    assert isinstance(transport._exchange, DirectExchange)
    transport.close()


def test_a_proxy_that_is_not_there_is_told_as_nobody(monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}/")
    transport = HttpTransport(AWAY, "t")
    with pytest.raises(ServerUnreachable, match="Nobody answers") as raised:
        transport.call(CALLS["get_health"], GetHealth())
    assert raised.value.details == {"cut": False, "refused": True, "trouble": "nobody"}
    transport.close()


def test_an_address_with_a_name_and_a_password_says_them():
    with scripted_server(lambda request: Answer(body=health())) as server:
        transport = HttpTransport(server.url.replace("http://", "http://me:secret@"), None)
        assert transport.call(CALLS["get_health"], GetHealth()) == health()
        transport.close()
    assert server.requests[0].headers["authorization"].startswith("Basic ")


def test_close_ends_a_call_that_waits(monkeypatch):
    asked = threading.Event()

    def serve(connection, _):
        read_request(connection)
        asked.set()
        connection.recv(1)

    ended = []

    def wait():
        try:
            transport.call(CALLS["get_health"], GetHealth(), timeout=30)
        except BaseException as error:
            ended.append(type(error))

    with raw_server(serve) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        transport = HttpTransport(AWAY, "t")
        thread = threading.Thread(target=wait)
        thread.start()
        assert asked.wait(10)
        transport.close()
        thread.join(5)
    assert ended == [Interrupted]
    with pytest.raises(Interrupted):
        transport.call(CALLS["get_health"], GetHealth())
