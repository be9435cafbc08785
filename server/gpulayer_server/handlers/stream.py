"""`/v1/stream`: GET opens a tab's WebSocket, POST is its multiplexed poll. Who may come is settled as for every other call."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tornado.websocket import WebSocketClosedError, WebSocketHandler

from gpulayer._version import __version__
from gpulayer.calls import Action, Role
from gpulayer.control.tokens import TOKENS_TOPIC
from gpulayer.errors import Interrupted, InvalidSpec
from gpulayer.protocol import PROTOCOL_VERSION, HelloFrame
from gpulayer_server.handlers.calls import CallHandler, serve
from gpulayer_server.identity import either_credential
from gpulayer_server.stream import StreamSocket

MESSAGE_LIMIT_BYTES = 64 * 1024
"""The longest that a tab has reason to send is under 1 KB."""
IDENTITY_SECONDS = 30.0
"""How often a token is looked at again at least, as long polls are asked anew."""
GOING_AWAY = 1001
REFUSED = 1008
_PING_MILLISECONDS = 30_000


class StreamHandler(CallHandler, WebSocketHandler):
    """A tab's socket, or its poll."""

    post = serve("read_stream")

    _socket: StreamSocket | None = None
    _serving: asyncio.Task[None] | None = None

    @either_credential(Action.READ, frozenset({Role.CLIENT}))
    async def get(self) -> None:
        if self.request.headers.get("Upgrade", "").lower() != "websocket":
            raise InvalidSpec("This is a WebSocket.", fix="Ask with `Upgrade: websocket`, or POST for a poll.")
        held_calls = self.host.held_calls
        if held_calls.ending:
            raise Interrupted("The Jupyter server is stopping.")
        with held_calls.count(self.caller):  # as long as the socket is open: this returns when it is closed
            self.forget_in_context()
            await WebSocketHandler.get(self)

    @property
    def max_message_size(self) -> int:
        return MESSAGE_LIMIT_BYTES

    @property
    def ping_interval(self) -> float:
        """In seconds; Jupyter's setting counts milliseconds. Proxies close what is silent, and a client may be gone without a word."""
        return float(self.settings.get("ws_ping_interval", _PING_MILLISECONDS)) / 1000

    @property
    def ping_timeout(self) -> float:
        return self.ping_interval

    def open(self) -> None:
        self.set_nodelay(True)
        hello = HelloFrame(version=__version__, protocol=PROTOCOL_VERSION, instance=self.host.instance, time=time.time())
        self._socket = StreamSocket(self.host.control_plane, self.write_message, hello)
        self._serving = self.host.held_calls.start(self._serve(self._socket))

    async def _serve(self, socket: StreamSocket) -> None:
        """Serve the socket for as long as its identity is good; ended by the tab's going or the server's stop."""
        code, reason = GOING_AWAY, "The Jupyter server is stopping."
        serving = asyncio.ensure_future(socket.serve())
        try:
            ends = [serving, *([] if self._bearer is None else [asyncio.ensure_future(self._until_revoked(self._bearer))])]
            try:
                ended, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if not serving.done() and all(end.exception() is None for end in ended):  # else it could not be looked at
                    code, reason = REFUSED, "The token is not good any more."
            finally:
                for end in ends:
                    end.cancel()
                await asyncio.gather(*ends, return_exceptions=True)
        finally:
            self.close(code, reason)

    async def _until_revoked(self, token: str) -> None:
        control_plane = self.host.control_plane
        with control_plane.waiters.watch(TOKENS_TOPIC) as watch:
            while await control_plane.authenticate(token) is not None:
                await watch.changed(IDENTITY_SECONDS)

    async def on_message(self, message: str | bytes) -> None:
        if self._socket is None:
            return  # it was closed while this was on its way
        try:
            if not await self._socket.hear(message):
                self.close(REFUSED, "Too many messages that make no sense.")
        except WebSocketClosedError:
            pass  # it closed while it was answered

    def on_close(self) -> None:
        serving, self._serving, self._socket = self._serving, None, None  # each refers to the others
        if serving is not None:
            serving.cancel()

    def check_origin(self, origin_to_satisfy_tornado: str = "") -> bool:
        return bool(super().check_origin(origin_to_satisfy_tornado))

    def get_compression_options(self) -> dict[str, Any] | None:
        """None: compressing costs the loop more than the bytes save (ADR-0037)."""
        return None
