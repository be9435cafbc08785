"""Every route of the live application × every verb × every credential: who gets in is what the table of calls says."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpulayer_server.handlers.calls import served_calls
from gpulayer_server.handlers.health import OPENAPI_PATH
from gpulayer_server.identity import GPUlayerHandler
from support.hosted import NO_TOKEN, Hosted, leave
from tornado.routing import RuleRouter

from gpulayer.calls import API_PREFIX, ARTIFACT_PATH, CALLS, LOG_DOWNLOAD_PATH, Role
from gpulayer.protocol import STREAM_PATH

VERBS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
SAFE = ("GET", "HEAD")
XSRF = "0123456789abcdef0123456789abcdef"
ID_FOR = {"sha256": "0" * 64}


@dataclass(frozen=True)
class Route:
    path: str  # below the base URL, with ids filled in
    roles: dict[str, frozenset[Role]]  # verb → who may use it


def _expected_roles() -> dict[str, dict[str, frozenset[Role]]]:
    """Path of the table → verb → roles."""
    expected: dict[str, dict[str, frozenset[Role]]] = {}
    for call in CALLS.values():
        expected.setdefault(call.path, {})[call.method] = call.roles
    expected[ARTIFACT_PATH] = dict.fromkeys(("GET", "HEAD", "PUT"), frozenset({Role.CLIENT, Role.WORKER}))
    expected[OPENAPI_PATH] = {"GET": frozenset(Role)}
    expected[LOG_DOWNLOAD_PATH] = {"GET": frozenset({Role.CLIENT})}
    expected[STREAM_PATH]["GET"] = frozenset({Role.CLIENT})
    return expected


def _live_rules(hosted: Hosted) -> Iterator[tuple[str, type[Any]]]:
    routers = [hosted.serverapp.web_app.default_router]
    while routers:
        for rule in routers.pop().rules:
            if isinstance(rule.target, RuleRouter):
                routers.append(rule.target)
            elif isinstance(rule.target, type) and issubclass(rule.target, GPUlayerHandler):
                yield rule.matcher.regex.pattern.removesuffix("$"), rule.target


def _live_routes(hosted: Hosted) -> list[Route]:
    expected = _expected_roles()
    routes = []
    for pattern, _ in _live_rules(hosted):
        where = pattern.removeprefix(hosted.base_url).replace(r"\.", ".")
        template = "/" + re.sub(r"\(\?P<(\w+)>[^)]*\)", r"{\1}", where)
        roles = expected.pop(template.removeprefix(API_PREFIX))
        path = re.sub(r"{(\w+)}", lambda field: ID_FOR.get(field[1], "none"), template).lstrip("/")
        routes.append(Route(path=path, roles=roles))
    assert not expected, f"in the table, but not served: {list(expected)}"
    return routes


async def test_every_row_is_served_once(hosted: Hosted) -> None:
    served = [call.name for _, handler in _live_rules(hosted) for call in served_calls(handler)]
    assert sorted(served) == sorted(CALLS)
    paths = [route.path for route in _live_routes(hosted)]
    assert len(paths) == len(set(paths))


async def test_who_gets_in(hosted: Hosted) -> None:
    worker_token, _ = await hosted.worker()
    login = await hosted.fetch("GET", "api/status", token=hosted.jupyter_token)
    cookie = next(value.split(";")[0] for value in login.headers.get_list("Set-Cookie") if value.startswith("username-"))
    with_xsrf = {"Cookie": f"{cookie}; _xsrf={XSRF}", "X-XSRFToken": XSRF}
    jupyter = {"Authorization": f"token {hosted.jupyter_token}"}

    credentials: dict[str, tuple[dict[str, str], str | None]] = {
        "none": ({}, None),
        "wrong token": ({"Authorization": "Bearer gpl_wrong"}, None),
        "client token": ({"Authorization": f"Bearer {hosted.client_token}"}, Role.CLIENT),
        "worker token": ({"Authorization": f"Bearer {worker_token}"}, Role.WORKER),
        "Jupyter token": (jupyter, Role.CLIENT),
        "Jupyter token as bearer": ({"Authorization": f"Bearer {hosted.jupyter_token}"}, Role.CLIENT),
        "cookie": ({"Cookie": cookie}, Role.CLIENT),
        "cookie and XSRF": (with_xsrf, Role.CLIENT),
        "cookie, XSRF, foreign Origin": ({**with_xsrf, "Origin": "http://evil.example"}, Role.CLIENT),
        "client token, foreign Origin": (
            {"Authorization": f"Bearer {hosted.client_token}", "Origin": "http://evil.example"},
            Role.CLIENT,
        ),
        "client token, foreign Host": ({"Authorization": f"Bearer {hosted.client_token}", "Host": "evil.example"}, Role.CLIENT),
        "Jupyter token, foreign Host": ({**jupyter, "Host": "evil.example"}, Role.CLIENT),
    }

    hosted.serverapp.log.setLevel("ERROR")  # a thousand refusals are not worth a line each
    wrong = []
    for route in _live_routes(hosted):
        for verb in VERBS:
            for name, (headers, role) in credentials.items():
                status = await _status(hosted, verb, route.path, headers)
                if not _is_right(status, name, verb, role, route):
                    wrong.append((route.path, verb, name, status))
    assert not wrong


async def _status(hosted: Hosted, verb: str, path: str, headers: dict[str, str]) -> int:
    """One request, the cheapest way: a whole client for each of a thousand requests takes half a minute."""
    reader, writer = await asyncio.open_connection("127.0.0.1", hosted.port)
    headers = {"Host": f"127.0.0.1:{hosted.port}", "Connection": "close", **headers}
    body = "" if verb in SAFE else "{}"
    lines = [f"{verb} {hosted.base_url}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*lines, f"Content-Length: {len(body)}", "", body]).encode())
    answer = await asyncio.wait_for(reader.read(), 10)
    await leave(writer)
    return int(answer.split()[1])


def _is_right(status: int, credential: str, verb: str, role: str | None, route: Route) -> bool:
    if role is None:
        return status == 401
    if "Host" in credential:
        return status == 403
    if "Origin" in credential:
        return status == 404
    if credential == "cookie" and verb not in SAFE:
        return status == 403
    if verb not in route.roles:
        return status == 405
    if role not in route.roles[verb]:
        return status == 403
    return status not in (401, 403, 405, 500)


async def test_preflight_says_nothing(hosted: Hosted) -> None:
    for route in _live_routes(hosted):
        answer = await hosted.fetch("OPTIONS", route.path, token=NO_TOKEN)
        assert answer.code in (200, 204)
        assert not answer.body
