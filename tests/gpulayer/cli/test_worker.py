"""Which control plane a worker joins, and where it looks for the next one. Whole workers are in test_jobs.py and the e2e lane."""

from __future__ import annotations

import contextlib
import json
import signal
import threading

import pytest
from support.client import Answer, health, scripted_server, write_server_file

from gpulayer.cli.main import run_command
from gpulayer.cli.worker import _check_server, _find_control_plane, _run
from gpulayer.client.http_transport import HttpTransport
from gpulayer.errors import InvalidSpec, NotAuthenticated, ServerUnreachable, encode_error


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in ("GPULAYER_URL", "GPULAYER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GPULAYER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def server_of(home_id: str):
    return scripted_server(lambda request: Answer(body=health(home_id=home_id)))


def shown_tokens(server) -> set[str]:
    return {request.headers["authorization"] for request in server.requests}


@pytest.fixture
def kept():
    """Keeps a transport and closes it at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda transport: stack.enter_context(contextlib.closing(transport))


@pytest.fixture
def find(kept):
    """The transport and how the next one is found."""

    def find(server, home, token):
        transport, rediscover, _ = _find_control_plane(server, home, token)
        return kept(transport), rediscover

    return find


def test_a_worker_of_a_far_server_never_turns_to_this_machines_own(home, find):
    with server_of("far") as far, server_of("near") as near:
        write_server_file(home, near.url)
        transport, rediscover = find(far.url, None, "gpw-token")
        assert (transport.url, rediscover) == (far.url, None)
    assert near.requests == []


def test_with_its_home_named_it_finds_the_next_server_of_that_home(home, find, kept):
    with server_of("one") as first, server_of("one") as second, server_of("two") as other:
        transport, rediscover = find(first.url, home, "gpw-token")
        assert transport.url == first.url
        assert rediscover() is None
        path = write_server_file(home, second.url)
        found = kept(rediscover())
        assert (found.url, found.token) == (second.url, "gpw-token")
        path.unlink()
        write_server_file(home, other.url)
        assert rediscover() is None
        assert shown_tokens(other) == {"Bearer file-token"}


def test_without_a_server_named_it_joins_its_homes_own(home, find):
    with server_of("one") as server, server_of("two") as other:
        path = write_server_file(home, server.url)
        transport, rediscover = find(None, None, None)
        assert (transport.url, transport.token) == (server.url, "file-token")
        path.unlink()
        write_server_file(home, other.url)
        assert rediscover() is None


def test_a_token_from_the_environment_is_shown_to_its_own_server_only(find, monkeypatch):
    monkeypatch.setenv("GPULAYER_TOKEN", "of-far")
    with server_of("far") as far, server_of("near") as near:
        with pytest.raises(InvalidSpec, match="needs a token"):
            find(near.url, None, None)
        monkeypatch.setenv("GPULAYER_URL", far.url)
        with pytest.raises(InvalidSpec, match="needs a token"):
            find(near.url, None, None)
        assert find(far.url, None, None)[0].token == "of-far"


def test_a_refused_join_token_says_where_one_comes_from(capsys, tmp_path, monkeypatch):
    refusal = encode_error(NotAuthenticated("The token is not known."))
    (tmp_path / "token").write_text("used\n")
    monkeypatch.setattr("gpulayer.hardware.inventory.find_frameworks", lambda python: {})
    with scripted_server(lambda request: Answer(status=401, body=json.dumps(refusal).encode())) as server:
        arguments = ["worker", "start", "--server", server.url, "--work-dir", str(tmp_path), "--cpu-devices", "1"]
        assert run_command([*arguments, "--token-file", str(tmp_path / "token")]) == 1
    assert "The server does not accept this join token." in (err := capsys.readouterr().err)
    assert "gpulayer token create --join" in err


def test_a_server_that_never_answered_ends_the_worker(monkeypatch):
    class Agent:
        worker_id = None

        def __init__(self):
            self.ended = threading.Event()

        def run(self):
            self.ended.wait()

        def stop(self):
            self.ended.set()

    def never_answers():
        raise ServerUnreachable("Nobody answers.")

    monkeypatch.setattr("gpulayer.cli.worker.FIRST_ANSWER_SECONDS", 0.0)
    agent = Agent()
    with pytest.raises(ServerUnreachable):
        _run(agent, check_server=never_answers)
    assert agent.ended.is_set()
    agent = Agent()
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert _run(agent, check_server=agent.stop) == 0  # it answers: the worker goes on
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_server_that_does_not_answer_is_named_with_both_ends_of_the_way_to_it(kept, monkeypatch):
    transport = kept(HttpTransport("http://127.0.0.1:9/", "t"))
    with pytest.raises(ServerUnreachable) as silent:
        _check_server(transport)
    assert "tried 127.0.0.1 port 9 from 127.0.0.1" in silent.value.found
    assert "ssh" not in silent.value.fix  # it was the end of a tunnel, or on this machine
    monkeypatch.setattr("gpulayer.worker.address.Way.is_loopback", False)
    with pytest.raises(ServerUnreachable, match=r"--ServerApp\.ip.*ssh -N -R 9:127\.0\.0\.1:9"):
        _check_server(transport)


def test_an_address_that_is_not_this_machines_is_refused_before_anything_starts(capsys):
    assert run_command(["worker", "start", "--server", "http://127.0.0.1:9", "--address", "192.0.2.1"]) == 2
    assert "--address 192.0.2.1" in capsys.readouterr().err
