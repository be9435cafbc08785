"""Opening, announcing and closing the control plane."""

import asyncio
import json
import os
import stat
import time
from pathlib import Path

import pytest
from gpulayer_server import connection_file
from gpulayer_server.connection_file import server_url
from gpulayer_server.hosting import ControlPlane
from support.hosted import Hosted

from gpulayer import __version__
from gpulayer.errors import InvalidSpec, ServerUnreachable, Unsupported, decode_error
from gpulayer.protocol import PROTOCOL_VERSION


async def test_too_early_is_said(unstarted: Hosted) -> None:
    answer = await unstarted.fetch("GET", "gpulayer/v1/health", token="any")
    assert answer.code == 503
    assert "Retry-After" in answer.headers
    error = decode_error(json.loads(answer.body))
    assert isinstance(error, ServerUnreachable)
    assert "starting" in error.message


async def test_a_control_plane_that_cannot_be_opened_is_said(unstarted: Hosted, gpulayer_home: Path) -> None:
    gpulayer_home.write_text("a file where the home should be")
    await unstarted.serverapp.extension_manager.start_all_extensions()
    answer = await unstarted.fetch("GET", "gpulayer/v1/health", token="any")
    assert answer.code >= 500
    assert "starting" not in answer.body.decode()
    assert (await unstarted.fetch("GET", "api/status", token=unstarted.jupyter_token)).code == 200


async def test_the_connection_file_is_written_and_withdrawn(hosted: Hosted, gpulayer_home: Path) -> None:
    (path,) = (gpulayer_home / "servers").glob("*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.environ["GPULAYER_CONNECTION_FILE"] == str(path)
    content = json.loads(path.read_text())
    assert content["id"] == path.stem
    assert content["pid"] == os.getpid()
    assert content["home"] == str(gpulayer_home)
    assert (content["version"], content["protocol"]) == (__version__, PROTOCOL_VERSION)
    assert content["base_url"] == hosted.base_url
    assert content["url"] == f"http://127.0.0.1:{hosted.port}{hosted.base_url}"
    assert abs(content["started_at"] - time.time()) < 60
    assert (await hosted.call("GET", "health", token=content["token"]))["protocol"] == PROTOCOL_VERSION

    await hosted.host.close()
    assert not path.exists()
    assert "GPULAYER_CONNECTION_FILE" not in os.environ

    again = await ControlPlane.open(gpulayer_home)
    try:
        assert await again.authenticate(content["token"]) is None
    finally:
        await again.close()


async def test_files_of_dead_servers_are_removed_and_their_tokens_revoked(unstarted: Hosted, gpulayer_home: Path) -> None:
    earlier = await ControlPlane.open(gpulayer_home)
    token = await earlier.issue_client_token("u", valid_seconds=None)
    await earlier.close()
    servers = gpulayer_home / "servers"
    stale = connection_file.write_connection_file(gpulayer_home, url="http://127.0.0.1:1/", base_url="/", token=token)
    record = stale.path.with_suffix(".issued")
    content = json.loads(stale.path.read_text())
    record.write_text(json.dumps({**content, "started_at": 0.0}))  # its process is this one, which began later: the id was reused
    stale.path.unlink()  # a client was first to see it
    foreign = servers / "foreign.issued"
    foreign.write_text(json.dumps({**content, "host": "elsewhere", "pid": 1 << 30}))

    await unstarted.serverapp.extension_manager.start_all_extensions()
    assert not record.exists()
    assert foreign.exists()
    assert (await unstarted.fetch("GET", "gpulayer/v1/health", token=token)).code == 401


@pytest.mark.parametrize(
    ("ip", "url"),
    [
        ("localhost", "http://127.0.0.1:8888/user/x/"),
        ("", "http://127.0.0.1:8888/user/x/"),
        ("0.0.0.0", "http://127.0.0.1:8888/user/x/"),
        ("::", "http://[::1]:8888/user/x/"),
        ("fd00::1", "http://[fd00::1]:8888/user/x/"),
        ("10.0.0.7", "http://10.0.0.7:8888/user/x/"),
    ],
)
def test_the_address_is_one_that_can_be_reached(ip: str, url: str) -> None:
    class App:
        sock, certfile, port, base_url = "", "", 8888, "/user/x/"

    App.ip = ip
    assert server_url(App) == url


def test_a_unix_socket_is_refused_in_words() -> None:
    class App:
        sock = "/run/jupyter.sock"

    with pytest.raises(Unsupported, match="UNIX socket"):
        server_url(App)


async def test_stopping_is_bounded_and_never_raises(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    control_plane = hosted.host.control_plane

    async def hangs() -> None:
        await asyncio.Event().wait()

    async def raises(_: str) -> None:
        raise InvalidSpec("no")

    monkeypatch.setattr("gpulayer_server.hosting.STOP_SECONDS", 0.3)
    monkeypatch.setattr(control_plane, "revoke_token", raises)
    monkeypatch.setattr(control_plane, "close", hangs)
    began = time.monotonic()
    await hosted.host.close()
    assert time.monotonic() - began < 2
    monkeypatch.undo()
    await control_plane.close()


async def test_a_slow_database_does_not_delay_jupyter(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    database = hosted.host.control_plane._database
    slow = asyncio.ensure_future(database.write(lambda _: time.sleep(2)))
    submit = asyncio.ensure_future(
        hosted.call("POST", "jobs", body={"spec": {"kind": "command", "argv": ["true"]}, "idempotency_key": "slow"})
    )
    longest = 0.0
    while not slow.done():
        began = time.monotonic()
        assert (await hosted.fetch("GET", "api/status", token=hosted.jupyter_token)).code == 200
        longest = max(longest, time.monotonic() - began)
        await asyncio.sleep(0.05)
    assert longest < 0.25
    assert (await submit)["state"] == "queued"
