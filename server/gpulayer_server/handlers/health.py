"""What the control plane is: its health, and the description of its calls."""

from __future__ import annotations

from gpulayer.calls import Action, Role
from gpulayer_server.handlers.calls import CallHandler, serve
from gpulayer_server.identity import GPUlayerHandler, either_credential
from gpulayer_server.openapi import encoded_document

OPENAPI_PATH = "/v1/openapi.json"


class HealthHandler(CallHandler):
    get = serve("get_health")


class OpenApiHandler(GPUlayerHandler):
    @either_credential(Action.READ, frozenset(Role))
    async def get(self) -> None:
        await self.finish(encoded_document())
