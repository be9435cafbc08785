from __future__ import annotations

import subprocess
import sys
import time

import pytest
from support.client import Answer, free_port, health, scripted_server, write_server_file

from gpulayer.calls import CALLS
from gpulayer.client.discovery import ServerFile, check_protocol, check_server_file, live_servers, rediscover_server
from gpulayer.client.http_transport import HttpTransport
from gpulayer.errors import Interrupted, NotAuthenticated, ProtocolMismatch, ServerUnreachable, TooManyCalls, encode_error
from gpulayer.protocol import GetHealth


def well(request):
    if request.headers.get("authorization") != "Bearer file-token":
        return Answer(status=401, body=encode_error(NotAuthenticated("Who?")))
    return Answer(body=health())


@pytest.fixture
def server():
    with scripted_server(well) as server:
        yield server


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return process.pid


def test_a_live_server_is_found_with_its_token(tmp_path, server):
    write_server_file(tmp_path, server.url)
    (live,) = live_servers(tmp_path)
    assert (live.file.root, live.file.token) == (server.url, "file-token")


def test_the_base_url_is_joined_once():
    fields = {"id": "s", "token": "t", "pid": 1, "started_at": 0.0, "home": "/h"}
    assert ServerFile(url="http://h:1/", base_url="/user/me/", **fields).root == "http://h:1/user/me/"
    assert ServerFile(url="http://h:1/user/me/", base_url="/user/me/", **fields).root == "http://h:1/user/me/"
    assert ServerFile(url="http://h:1", base_url="/", **fields).root == "http://h:1/"


def test_the_file_of_a_dead_process_is_removed(tmp_path, server):
    path = write_server_file(tmp_path, server.url, pid=dead_pid())
    assert live_servers(tmp_path) == []
    assert not path.exists()


def test_a_process_id_that_was_given_again_is_not_mistaken_for_the_server(tmp_path, server):
    # This process has started after the file was written, so it can't be what wrote it.
    path = write_server_file(tmp_path, server.url, started_at=1_000_000_000.0)
    assert check_server_file(path) is None
    assert not path.exists()


def test_a_server_that_is_just_starting_keeps_its_file(tmp_path):
    path = write_server_file(tmp_path, f"http://127.0.0.1:{free_port()}/")
    assert check_server_file(path) is None
    assert path.exists()


def test_the_file_of_a_server_that_no_longer_listens_is_removed_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr("gpulayer.client.discovery.START_SECONDS", -1.0)
    path = write_server_file(tmp_path, f"http://127.0.0.1:{free_port()}/")
    assert check_server_file(path) is None
    assert not path.exists()


@pytest.mark.parametrize(
    "answer",
    [
        Answer(status=500, body=b"oops"),
        Answer(status=404),
        Answer(cut=True),
        Answer(status=401, body=encode_error(NotAuthenticated("Who?"))),
        Answer(status=429, body=encode_error(TooManyCalls("Too many."))),
        Answer(status=503, body=encode_error(Interrupted("The server is stopping."))),
    ],
)
def test_a_server_that_answers_with_an_error_is_there(tmp_path, monkeypatch, answer):
    monkeypatch.setattr("gpulayer.client.discovery.START_SECONDS", -1.0)
    with scripted_server(lambda request: answer) as server:
        path = write_server_file(tmp_path, server.url)
        live = check_server_file(path)
        assert (live.file.root, live.health) == (server.url, None)
        assert path.exists()


def test_a_server_to_which_no_tls_connection_can_be_made_is_there(tmp_path, monkeypatch, server):
    """As with a certificate that is not trusted: httpx has the same error for it as for a port on which nobody listens."""
    monkeypatch.setattr("gpulayer.client.discovery.START_SECONDS", -1.0)
    url = server.url.replace("http:", "https:")
    path = write_server_file(tmp_path, url)
    assert check_server_file(path) is not None
    assert path.exists()
    transport = HttpTransport(url, "t")
    with pytest.raises(ServerUnreachable, match="No trusted connection") as raised:
        transport.call(CALLS["get_health"], GetHealth())
    transport.close()
    assert "SSL_CERT_FILE" in raised.value.two_lines()


def test_a_file_of_another_machine_is_not_judged_by_its_process_id(tmp_path, server):
    write_server_file(tmp_path, server.url, host="elsewhere", pid=dead_pid())
    (live,) = live_servers(tmp_path)
    assert not live.file.is_here


def test_our_own_loopback_says_nothing_about_another_machines_server(tmp_path, monkeypatch):
    monkeypatch.setattr("gpulayer.client.discovery.START_SECONDS", -1.0)
    with scripted_server(lambda request: Answer(status=401, body=encode_error(NotAuthenticated("Who?")))) as ours:
        for url in (ours.url, f"http://127.0.0.1:{free_port()}/"):
            path = write_server_file(tmp_path, url, host="elsewhere")
            assert check_server_file(path) is None
            assert path.exists()


@pytest.mark.parametrize(
    "content", ["", "{", '{"id": 1}', "[]", '{"id": "s", "url": "h:1", "token": "t", "pid": 1, "started_at": 1, "home": "/h"}']
)
def test_a_file_that_is_none_is_passed_over(tmp_path, content):
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers/x.json").write_text(content)
    assert live_servers(tmp_path) == []
    assert (tmp_path / "servers/x.json").exists()


def test_the_next_server_is_found_with_a_credential_that_outlives_the_first(tmp_path, server):
    assert rediscover_server(tmp_path) is None
    write_server_file(tmp_path, server.url, started_at=time.time())
    found = rediscover_server(tmp_path, token="worker-token")
    assert (found.url, found.token) == (server.url, "worker-token")
    write_server_file(tmp_path, server.url)
    assert rediscover_server(tmp_path) is None


def test_a_server_of_another_home_is_passed_over_and_sees_no_token_but_its_own(tmp_path, server):
    write_server_file(tmp_path, server.url)
    assert rediscover_server(tmp_path, "worker-token", home_id="another") is None
    found = rediscover_server(tmp_path, "worker-token", home_id="h")
    assert found.token == "worker-token"
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer file-token"}


def test_versions_n_and_n_minus_1_work_together():
    check_protocol(health(protocol=2), "there")
    check_protocol(health(protocol=0), "there")
    with pytest.raises(ProtocolMismatch, match="another version"):
        check_protocol(health(protocol=3), "there")
