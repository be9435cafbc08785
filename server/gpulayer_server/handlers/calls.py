"""The base of handlers that answer rows of the table of calls: request in, control plane, response out.

`serve(call)` is the whole handler of one row. A call that waits is counted, and ends when its client goes away: tornado
would run it on, and hand an assignment to nobody.
"""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from typing import Any

import msgspec
from tornado.web import HTTPError

from gpulayer.calls import CALLS, Action, Call, Role
from gpulayer.control import Caller
from gpulayer.errors import Interrupted, InvalidSpec, TooLarge
from gpulayer.protocol import Heartbeat, Message
from gpulayer.settings import LONG_POLL_SECONDS
from gpulayer_server.identity import GPUlayerHandler, Verb, either_credential

JSON_LIMIT_BYTES = 32 * 1024 * 1024
"""The end of an attempt is the largest body there is: it names every output file, 150 bytes and more each, so there is room
for some 100 000. A decode of this size takes some 30 ms of the loop; a batch of output is 1.4 MB at most.
"""


class CallHandler(GPUlayerHandler):
    """Answers calls with the control plane."""

    _waiting: asyncio.Task[Message] | None = None
    _is_client_gone = False

    async def answer(self, call: Call, path: dict[str, str]) -> None:
        """Parse, let the control plane answer, encode."""
        request = self._parse(call, path)
        self._track_activity = call.action is not Action.READ
        response = await self._wait(call, request) if self.is_held(request) else await self.handle(call, request, self.caller)
        if response is None:
            return  # nobody is there to read it
        if shows_running_job(call, request):
            self.settings["last_activity_times"]["gpulayer"] = datetime.now(UTC)
        await self.finish(msgspec.json.encode(response))

    def is_held(self, request: Message) -> bool:
        """Whether the call may wait for something to happen; one that does without a `wait` of its own overrides it."""
        return bool(getattr(request, "wait", 0.0) > 0.0)

    async def handle(self, call: Call, request: Message, caller: Caller) -> Message:
        """What answers the call; a handler whose call needs something of this server besides overrides it."""
        response: Message = await self.host.control_plane.handle(call, request, caller)
        return response

    async def _wait(self, call: Call, request: Message) -> Message | None:
        held_calls = self.host.held_calls
        if held_calls.ending:
            raise Interrupted("The Jupyter server is stopping.")
        with held_calls.count(self.caller):
            if self._has_client_left():
                return None
            self.forget_in_context()
            self._waiting = held_calls.start(self.handle(call, request, self.caller))
            try:
                return await self._waiting
            except asyncio.CancelledError:
                if not self._waiting.cancelled():
                    self._waiting.cancel()
                    raise
                if self._has_client_left():
                    return None
                raise Interrupted("The Jupyter server is stopping.", fix="Jobs go on; ask again once it is back.") from None

    def _has_client_left(self) -> bool:
        return self._is_client_gone

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self._is_client_gone = True
        if self._waiting is not None:
            self._waiting.cancel()

    def _parse(self, call: Call, path: dict[str, str]) -> Message:
        try:
            if call.method == "GET":
                query = {name: self.get_query_argument(name) for name in self.request.query_arguments}
                request = msgspec.convert({**query, **path}, call.request, strict=False)
            else:
                request = _decode_body(self.request.body, call, path)
        except (msgspec.DecodeError, HTTPError) as error:
            raise InvalidSpec(
                f"The request is not what {call.name} takes.",
                found=str(error),
                fix="docs/openapi.json describes every call.",
            ) from error
        wait = getattr(request, "wait", None)
        if wait is None:
            return request
        if math.isnan(wait):
            raise InvalidSpec("`wait` is a number of seconds.", asked=str(wait))
        return msgspec.structs.replace(request, wait=min(max(wait, 0.0), LONG_POLL_SECONDS))


def _decode_body(body: bytes, call: Call, path: dict[str, str]) -> Message:
    if len(body) > JSON_LIMIT_BYTES:
        raise TooLarge("The request is too large.", asked=f"{len(body)} bytes", found=f"a limit of {JSON_LIMIT_BYTES} bytes")
    if not path:
        return msgspec.json.decode(body or b"{}", type=call.request)
    # Raw values are copied, not parsed, so that log chunks are decoded once.
    fields = msgspec.json.decode(body or b"{}", type=dict[str, msgspec.Raw])
    fields.update({name: msgspec.Raw(msgspec.json.encode(value)) for name, value in path.items()})
    return msgspec.json.decode(msgspec.json.encode(fields), type=call.request)


def shows_running_job(call: Call, request: Message) -> bool:
    """Whether the call is a sign of work, for Jupyter's idle culling: a person's act, or a worker with a task.

    An idle worker's acquire and an empty heartbeat are none, so that an idle server can be culled with workers attached.
    """
    if isinstance(request, Heartbeat):
        return bool(request.running)
    if Role.WORKER in call.roles:
        return "task_id" in call.path_fields and call.action is not Action.READ
    return call.action is not Action.READ


def serve(name: str) -> Verb:
    """The handler of one row of the table: a method for the verb that the row names."""
    call = CALLS[name]

    @either_credential(call.action, call.roles)
    async def verb(self: CallHandler, **path: str) -> None:
        await self.answer(call, path)

    verb.call = call  # type: ignore[attr-defined]  # read by the test that compares the routes with the table
    return verb


def served_calls(handler: type[Any]) -> tuple[Call, ...]:
    """The rows that a handler answers."""
    return tuple(verb.call for verb in (handler.get, handler.post) if hasattr(verb, "call"))
