from __future__ import annotations

import json

import msgspec
import pytest
from support.client import health

from gpulayer.calls import CALLS
from gpulayer.client.answers import read_answer, read_error
from gpulayer.errors import NotAuthenticated, ServerUnreachable, TooLarge, UnknownJob, encode_error

URL = "http://host:8888/base/"
HTML = {"content-type": "text/html; charset=utf-8"}


def test_our_message_is_decoded_and_unknown_fields_are_ignored():
    body = json.dumps({**msgspec.to_builtins(health()), "later": 1}).encode()
    assert read_answer(CALLS["get_health"], 200, {}, body, url=URL) == health()


def test_our_error_comes_back_as_its_own_class():
    sent = UnknownJob("No job has this id.", asked="j9", fix="See gpulayer jobs.", details={"a": 1})
    with pytest.raises(UnknownJob) as raised:
        read_answer(CALLS["wait_job"], 404, {}, json.dumps(encode_error(sent)).encode(), url=URL)
    assert (raised.value.asked, raised.value.fix, raised.value.details) == ("j9", "See gpulayer jobs.", {"a": 1})


def test_an_unknown_credential_names_the_server():
    error = read_error(401, {}, json.dumps(encode_error(NotAuthenticated("Who?"))).encode(), url=URL)
    assert URL in error.two_lines()


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "words"),
    [
        (200, HTML, b"<html>Welcome</html>", ServerUnreachable, "base_url"),
        (200, {"content-type": "application/json"}, b'{"some": "thing"}', ServerUnreachable, "not a GPUlayer control plane"),
        (404, HTML, b"<html>404</html>", ServerUnreachable, "extension"),
        (302, {"location": "/hub/login?next=x"}, b"", NotAuthenticated, "client token"),
        (302, {"location": "https://elsewhere/"}, b"", ServerUnreachable, "302"),
        (403, {"content-type": "application/json"}, b'{"message": "Forbidden", "reason": null}', NotAuthenticated, "Forbidden"),
        (413, HTML, b"too large", TooLarge, "32 MiB"),
        (502, HTML, b"bad gateway", ServerUnreachable, "running"),
        (500, {}, b"\xff\xfe", ServerUnreachable, "500"),
    ],
)
def test_what_is_not_ours_says_where_what_and_what_to_do(status, headers, body, kind, words):
    with pytest.raises(kind) as raised:
        read_answer(CALLS["get_health"], status, headers, body, url=URL)
    text = raised.value.two_lines()
    assert URL in text
    assert words in text
    assert raised.value.fix
