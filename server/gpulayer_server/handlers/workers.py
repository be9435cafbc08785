"""Workers, as operators see them: list, register, start on this machine, drain, let another one join."""

from __future__ import annotations

from gpulayer.calls import Call
from gpulayer.control import Caller
from gpulayer.protocol import Message
from gpulayer_server.handlers.calls import CallHandler, serve


class WorkersHandler(CallHandler):
    get = serve("list_workers")
    post = serve("register_worker")


class LocalWorkersHandler(CallHandler):
    """Its call waits for the workers to register; one that dies instead ends the wait with the end of its log."""

    post = serve("start_local_workers")

    def is_held(self, request: Message) -> bool:  # noqa: ARG002 (whatever it asks for, it waits)
        return True

    async def handle(self, call: Call, request: Message, caller: Caller) -> Message:
        local_workers = self.host.local_workers
        assert local_workers is not None  # there is one wherever there is a control plane
        return await local_workers.unless_one_dies(self.host.control_plane.handle(call, request, caller))


class DrainHandler(CallHandler):
    post = serve("drain_worker")


class JoinTokensHandler(CallHandler):
    post = serve("create_join_token")
