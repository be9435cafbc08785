"""Which control plane a worker joins, and where it looks for the next one. Whole workers are in test_jobs.py and the e2e lane."""

from __future__ import annotations

import contextlib

import pytest
from support.client import Answer, health, scripted_server, write_server_file

from gpulayer.cli.worker import _find_control_plane
from gpulayer.errors import InvalidSpec


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
