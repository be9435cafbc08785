from __future__ import annotations

import stat
import time

import pytest
from support.client import Answer, free_port, health, scripted_server, write_server_file

from gpulayer import targets
from gpulayer.cli.main import run_command
from gpulayer.embedded import EmbeddedControlPlane
from gpulayer.errors import InvalidSpec, NotAuthenticated, ProtocolMismatch, ServerUnreachable, SeveralServers, encode_error
from gpulayer.targets import connect


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    for name in ("GPULAYER_URL", "GPULAYER_TOKEN", "GPULAYER_CONNECTION_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GPULAYER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GPULAYER_WORK_DIR", str(tmp_path / "work"))
    monkeypatch.setattr("gpulayer.settings.config_dir", lambda: tmp_path / "config")
    yield
    for control_plane in list(EmbeddedControlPlane._open.values()):
        control_plane.close()


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def named_server(name: str):
    return scripted_server(lambda request: Answer(body=health(home_id=name)))


@pytest.fixture
def one():
    with named_server("one") as server:
        yield server


@pytest.fixture
def two():
    with named_server("two") as server:
        yield server


def found(*arguments, **keywords) -> tuple[str, str]:
    with connect(*arguments, **keywords) as client:
        return client.health().home_id, client.description


def test_without_anything_this_process_itself_is_the_control_plane(home):
    with connect() as client:
        assert client.is_embedded
        assert str(home) in client.description
        assert "no server found" in client.description


def test_the_order_is_argument_url_default_inherited_file_one_live_server(home, one, two, monkeypatch, tmp_path):
    write_server_file(home, one.url)
    assert found()[0] == "one"
    assert "the one server of the home" in found()[1]

    elsewhere = write_server_file(tmp_path / "other-home", two.url)
    monkeypatch.setenv("GPULAYER_CONNECTION_FILE", str(elsewhere))
    name, description = found()
    assert name == "two"
    assert description == f"Jupyter server at {two.url} (from GPULAYER_CONNECTION_FILE)"
    with connect() as client:
        assert client.place == f"Jupyter server at {two.url}"

    targets.add_target("first", one.url, "kept-token")
    targets.use_target("first")
    assert found() == ("one", f"control plane at {one.url} (default target 'first')")
    assert one.requests[-1].headers["authorization"] == "Bearer kept-token"

    monkeypatch.setenv("GPULAYER_URL", two.url)
    monkeypatch.setenv("GPULAYER_TOKEN", "from-the-environment")
    assert found() == ("two", f"control plane at {two.url} (from GPULAYER_URL)")
    assert two.requests[-1].headers["authorization"] == "Bearer from-the-environment"

    assert found("first")[0] == "one"
    assert found(one.url)[0] == "one"
    assert found("cluster")[0] == "two"
    with connect("local") as client:
        assert client.is_embedded


def test_two_servers_and_none_inherited_is_an_error_that_lists_them(home, one, two):
    write_server_file(home, one.url)
    write_server_file(home, two.url)
    with pytest.raises(SeveralServers) as raised:
        connect()
    text = raised.value.two_lines()
    assert one.url in text
    assert two.url in text
    assert found(two.url)[0] == "two"
    assert two.requests[-1].headers["authorization"] == "Bearer file-token"


def test_a_stale_inherited_file_is_removed_and_the_search_goes_on(home, one, monkeypatch):
    stale = write_server_file(home, f"http://127.0.0.1:{free_port()}/", started_at=1.0)
    monkeypatch.setenv("GPULAYER_CONNECTION_FILE", str(stale))
    write_server_file(home, one.url)
    assert found()[0] == "one"
    assert not stale.exists()


@pytest.mark.parametrize(
    "answer", [Answer(status=500, body=b"oops"), Answer(status=401, body=encode_error(NotAuthenticated("Who?"))), Answer(status=404)]
)
def test_a_server_that_is_there_and_not_well_is_told_and_never_replaced(home, answer):
    with scripted_server(lambda request: answer) as server:
        path = write_server_file(home, server.url, started_at=time.time() - 0.5)
        with pytest.raises((ServerUnreachable, NotAuthenticated)):
            connect()
        assert path.exists()
    assert EmbeddedControlPlane._open == {}


def test_what_is_named_and_does_not_answer_is_never_replaced(home, one, monkeypatch):
    write_server_file(home, one.url)
    dead = f"http://127.0.0.1:{free_port()}/"
    with pytest.raises(ServerUnreachable):
        connect(dead)
    monkeypatch.setenv("GPULAYER_URL", dead)
    with pytest.raises(ServerUnreachable):
        connect()
    with pytest.raises(ServerUnreachable):
        connect("cluster")


def test_cluster_is_never_embedded():
    with pytest.raises(ServerUnreachable, match="never this process"):
        connect("cluster")
    assert EmbeddedControlPlane._open == {}


def test_a_wrong_token_and_another_protocol_are_refused_with_what_to_do():
    with (
        scripted_server(
            lambda request: Answer(status=401, body=encode_error(NotAuthenticated("No credential.", fix="Send one.")))
        ) as server,
        pytest.raises(NotAuthenticated) as raised,
    ):
        connect(server.url, token="wrong")
    assert server.url in raised.value.two_lines()
    with scripted_server(lambda request: Answer(body=health(protocol=9))) as server, pytest.raises(ProtocolMismatch):
        connect(server.url)


def test_tokens_are_not_shown_to_other_servers(home, one, two, monkeypatch):
    monkeypatch.setenv("GPULAYER_URL", one.url)
    monkeypatch.setenv("GPULAYER_TOKEN", "of-one")
    assert found(two.url)[0] == "two"
    assert "authorization" not in two.requests[-1].headers
    assert found(two.url, token="given")[0] == "two"
    assert two.requests[-1].headers["authorization"] == "Bearer given"
    monkeypatch.delenv("GPULAYER_URL")
    assert found(one.url)[0] == "one"
    assert "authorization" not in one.requests[-1].headers
    assert run_command(["target", "add", "other", two.url]) == 0
    assert targets.load_targets().targets["other"].token is None


def test_clients_of_this_machines_servers_may_start_workers_there(home, one, two):
    write_server_file(home, one.url)
    with connect() as client:
        assert client.is_local
    with connect(one.url) as client:
        assert client.is_local
    with connect(two.url) as client:
        assert not client.is_local


def test_named_targets_are_kept_for_their_owner_only(tmp_path, one):
    targets.add_target("lab", one.url, "t")
    targets.use_target("lab")
    path = tmp_path / "config" / "targets.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert targets.load_targets().default == "lab"
    targets.remove_target("lab")
    assert targets.load_targets() == targets.Targets()
    assert [file.name for file in path.parent.iterdir()] == ["targets.json"]


def test_unknown_targets_and_bad_names_are_refused():
    with pytest.raises(InvalidSpec, match="no target of this name"):
        connect("nowhere")
    with pytest.raises(InvalidSpec):
        targets.use_target("nowhere")
    with pytest.raises(InvalidSpec):
        targets.remove_target("nowhere")
    for name in ("local", "cluster", "", "a b", "../x"):
        with pytest.raises(InvalidSpec):
            targets.add_target(name, "http://h/", None)
    with pytest.raises(InvalidSpec):
        targets.add_target("x", "h:8888", None)


def test_the_default_may_be_local_and_may_be_taken_back(home, one):
    write_server_file(home, one.url)
    targets.use_target("local")
    with connect() as client:
        assert client.is_embedded
    targets.use_target(None)
    assert found()[0] == "one"


def test_a_damaged_file_of_targets_is_named(tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "targets.json").write_text("{")
    with pytest.raises(InvalidSpec, match="can't be read"):
        connect()
