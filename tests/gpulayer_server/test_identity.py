"""Errors, Jupyter's authoriser, and what counts as activity."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from gpulayer_server import identity
from jupyter_server.auth import Authorizer, IdentityProvider, User
from support.hosted import NO_TOKEN, Hosted
from traitlets.config import Config

from gpulayer import settings
from gpulayer.errors import InternalError, InvalidSpec, NotAuthenticated, UnknownJob, decode_error

JOB = {"spec": {"kind": "command", "argv": ["true"]}, "idempotency_key": "one"}


class ReadOnly(Authorizer):
    """May look at GPUlayer and use the rest of Jupyter; may not submit, cancel or start workers."""

    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        return resource != "gpulayer" or action == "read"


class TestViewWithoutSubmit:
    @pytest.fixture
    def jp_server_config(self, jp_server_config: Config) -> Config:
        jp_server_config.ServerApp.authorizer_class = ReadOnly
        return jp_server_config

    async def test_reads_and_nothing_else(self, hosted: Hosted) -> None:
        token = hosted.jupyter_token
        assert (await hosted.fetch("GET", "gpulayer/v1/jobs", token=token)).code == 200
        for path in ("jobs", "jobs/none/cancel", "workers/local", "tokens/join"):
            answer = await hosted.fetch("POST", f"gpulayer/v1/{path}", token=token, body={})
            assert answer.code == 403, path
            assert json.loads(answer.body)["error"]["code"] == "not_authorized"
        # A token of GPUlayer is its own authority: the kernel's user may submit.
        assert (await hosted.fetch("POST", "gpulayer/v1/tokens/join", body={})).code == 200


class Named(IdentityProvider):
    """Knows who holds a token, as a hub does."""

    async def get_user_token(self, handler: Any) -> User | None:
        return User("ada") if await super().get_user_token(handler) else None


class Greeting(IdentityProvider):
    """Has something of its own, and no users."""

    def get_handlers(self) -> list[tuple[str, object]]:
        return [*super().get_handlers()]


def test_a_jupyter_without_one_of_the_names_is_none_the_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_NAMING", (*identity._NAMING, "a_name_of_another_version"))
    names_users = identity._names_users.__wrapped__
    assert [names_users(provider) for provider in (IdentityProvider, Greeting, Named)] == [False, False, True]


class TestOwner:
    async def test_of_a_provider_without_users_is_this_account(self, hosted: Hosted) -> None:
        jobs = [await hosted.call("POST", "jobs", body=JOB, token=token) for token in (hosted.jupyter_token, hosted.jupyter_token, None)]
        assert {job["owner"] for job in jobs} == {settings.os_user()}
        assert len({job["job_id"] for job in jobs}) == 1

    @pytest.mark.parametrize("jp_server_config", [Named, Greeting], indirect=True)
    async def test_of_another_provider_is_its_user_where_it_has_users(self, hosted: Hosted) -> None:
        job = await hosted.call("POST", "jobs", body=JOB, token=hosted.jupyter_token)
        assert job["owner"] == ("ada" if isinstance(hosted.serverapp.identity_provider, Named) else settings.os_user())

    @pytest.fixture
    def jp_server_config(self, jp_server_config: Config, request: pytest.FixtureRequest) -> Config:
        if hasattr(request, "param"):
            jp_server_config.ServerApp.identity_provider_class = request.param
        return jp_server_config


async def test_errors_arrive_as_their_own_class(hosted: Hosted) -> None:
    for options, kind, status in (
        ({"method": "GET", "path": "jobs/none"}, UnknownJob, 404),
        ({"method": "GET", "path": "jobs/none", "token": NO_TOKEN}, NotAuthenticated, 401),
        ({"method": "GET", "path": "events?after=soon"}, InvalidSpec, 400),
        ({"method": "POST", "path": "jobs", "body": b"{no json"}, InvalidSpec, 400),
        ({"method": "POST", "path": "jobs", "body": b"\xff\xfe"}, InvalidSpec, 400),
        ({"method": "POST", "path": "jobs", "body": b"[]"}, InvalidSpec, 400),
        ({"method": "POST", "path": "jobs/none/cancel", "body": b"[]"}, InvalidSpec, 400),
        (
            {"method": "POST", "path": "jobs", "body": {**JOB, "spec": {**JOB["spec"], "devices": 0}}},
            InvalidSpec,
            400,
        ),
    ):
        options["path"] = "gpulayer/v1/" + options["path"]
        answer = await hosted.fetch(**options)
        error = decode_error(json.loads(answer.body))
        assert (type(error), answer.code) == (kind, status), (options, answer.body)
        assert answer.headers["Content-Type"] == "application/json"


async def test_a_fault_of_ours_names_its_log_reference(hosted: Hosted, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    async def broken(*_: Any) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(hosted.host.control_plane, "handle", broken)
    answer = await hosted.fetch("GET", "gpulayer/v1/jobs")
    error = decode_error(json.loads(answer.body))
    assert answer.code == 500
    assert isinstance(error, InternalError)
    assert "secret" not in answer.body.decode()
    (record,) = [record for record in caplog.records if error.details["reference"] in record.getMessage()]
    assert record.exc_info is not None


async def test_a_secret_is_in_no_log_line(hosted: Hosted, caplog: Any) -> None:
    await hosted.call("GET", "jobs")
    await hosted.fetch("POST", "gpulayer/v1/jobs", body=b"{no json")
    await hosted.fetch("GET", "gpulayer/v1/jobs", token="gpl_canary")
    for secret in (hosted.client_token, "gpl_canary"):
        assert secret not in caplog.text


async def test_only_work_is_activity(hosted: Hosted) -> None:
    settings = hosted.serverapp.web_app.settings
    token, worker = await hosted.worker()
    settings["last_activity_times"].clear()
    settings["api_last_activity"] = idle = datetime.now(UTC)

    await hosted.call("POST", "worker/acquire", token=token, body={**worker, "free": 1})
    await hosted.call("POST", "worker/heartbeat", token=token, body={**worker, "running": []})
    await hosted.call("GET", "jobs", token=hosted.jupyter_token)
    await hosted.call("GET", "workers")
    assert not settings["last_activity_times"]
    assert settings["api_last_activity"] == idle

    job = await hosted.call("POST", "jobs", body=JOB)
    orders = await hosted.call("POST", "worker/acquire", token=token, body={**worker, "free": 1, "wait": 5})
    settings["last_activity_times"].clear()
    attempt = {"task_id": orders["assignments"][0]["task_id"], "attempt": orders["assignments"][0]["attempt"]}
    await hosted.call("POST", "worker/heartbeat", token=token, body={**worker, "running": [attempt]})
    assert settings["last_activity_times"]["gpulayer"] > idle
    assert job["state"] in ("queued", "running")
