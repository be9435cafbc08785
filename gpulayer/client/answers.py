"""What an HTTP answer means: our message, our error, or something that is no control plane at all.

Errors are decoded here and nowhere else. Knows no HTTP library: a status, headers and a body come in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gpulayer.calls import Call
from gpulayer.errors import GPUlayerError, NotAuthenticated, ServerUnreachable, TooLarge, TooManyCalls, decode_error

GATEWAY_STATUSES = (502, 503, 504)
"""A proxy's answer when the server behind it is away or too slow."""


def read_answer(call: Call, status: int, headers: Mapping[str, str], body: bytes, *, url: str) -> Any:
    """The response message of `call`, or raises what the answer says instead."""
    if status != 200:
        raise read_error(status, headers, body, url=url)
    try:
        return msgspec.json.decode(body, type=call.response)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _not_ours(status, headers, body, url=url) from error


def read_error(status: int, headers: Mapping[str, str], body: bytes, *, url: str) -> GPUlayerError:
    """The error that an answer other than 200 stands for."""
    fields = _json_object(body)
    if fields is not None and isinstance(fields.get("error"), dict) and "code" in fields["error"]:
        error = decode_error(fields)
        if isinstance(error, NotAuthenticated) and error.asked is None:
            error.asked = url
        if isinstance(error, TooManyCalls) and headers.get("retry-after", "").isdecimal():
            error.details["retry_after_seconds"] = float(headers["retry-after"])
        return error
    if 300 <= status < 400 and "login" in headers.get("location", ""):
        return _no_credential(f"a redirect to {headers['location']}", url)
    if status in (401, 403):
        # Jupyter answers 403, not 401, to a token that it does not know.
        return _no_credential(_describe(status, headers, body), url)
    if status == 413:
        return TooLarge(
            f"A request was too large for the server at {url}, or for a proxy before it.",
            found=_describe(status, headers, body),
            fix="Let the proxy pass request bodies of 32 MiB.",
        )
    return _not_ours(status, headers, body, url=url)


def _no_credential(found: str, url: str) -> NotAuthenticated:
    return NotAuthenticated(
        f"The server at {url} does not accept this credential.",
        found=found,
        fix="Give a GPUlayer client token of that server: GPULAYER_TOKEN, `gpulayer target add`, or connect(url, token=...).",
    )


def _not_ours(status: int, headers: Mapping[str, str], body: bytes, *, url: str) -> ServerUnreachable:
    if status in GATEWAY_STATUSES:
        fix = "Is the Jupyter server behind that address running? Try again when it is."
    elif status == 404:
        fix = (
            "If it is a Jupyter server, GPUlayer's extension is off there, or the address lacks its base_url: "
            "see `jupyter server extension list`."
        )
    else:
        fix = "Check the address: it is the Jupyter server's, with its base_url, as the browser shows it."
    return ServerUnreachable(
        f"What answers at {url} is not a GPUlayer control plane.",
        found=_describe(status, headers, body),
        fix=fix,
        details={"http_status": status},
    )


def _describe(status: int, headers: Mapping[str, str], body: bytes) -> str:
    kind = headers.get("content-type", "").split(";")[0] or "no content type"
    fields = _json_object(body)
    message = fields.get("message") if fields else None
    return f"HTTP {status}, {kind}" + (f", {str(message)[:200]!r}" if message else "")


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) else None
