"""Who is calling: the base of every handler, and the decorator of every verb (docs: Security).

A bearer token of GPUlayer is checked before Jupyter's own `prepare`. Where it is valid, Jupyter's identity provider is not asked
for another user and XSRF is not checked; Host and Origin are, by Jupyter's own rules. Every other request (cookies, Jupyter's
tokens) goes Jupyter's way unchanged. Errors are encoded here and nowhere else.
"""

from __future__ import annotations

import functools
import json
import re
import secrets
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.auth.identity import IdentityProvider, PasswordIdentityProvider, User
from jupyter_server.base.call_context import CallContext
from jupyter_server.base.handlers import APIHandler
from tornado.web import HTTPError

from gpulayer import settings
from gpulayer.calls import Action, Role
from gpulayer.control import Caller
from gpulayer.errors import (
    GPUlayerError,
    InternalError,
    InvalidSpec,
    NotAuthenticated,
    NotAuthorized,
    NotFound,
    TooLarge,
    encode_error,
)
from gpulayer_server import access_log
from gpulayer_server.hosting import ControlPlaneHost

Verb = Callable[..., Coroutine[Any, Any, None]]

_BEARER = re.compile(r"bearer\s+(\S+)\s*", re.IGNORECASE)
_RETRY_SECONDS = 1
_HOSTS_REMEMBERED = 64
_JUPYTER_ERRORS: dict[int, type[GPUlayerError]] = {
    400: InvalidSpec,
    401: NotAuthenticated,
    403: NotAuthorized,
    404: NotFound,
    413: TooLarge,
}
_NO_CREDENTIAL_FIX = "Send a GPUlayer token as `Authorization: Bearer …`, or Jupyter's own cookie or token."


class GPUlayerHandler(APIHandler):
    """Base of every handler: authenticates, and turns whatever is raised into one JSON error."""

    auth_resource = "gpulayer"
    # Neither a worker's poll nor a panel's look is a person's activity; calls that change something say so themselves.
    _track_activity = False

    caller: Caller
    _token_caller: Caller | None = None
    _bearer: str | None = None  # the token of `_token_caller`
    _is_host_allowed = False
    _log_reference: str | None = None

    @property
    def host(self) -> ControlPlaneHost:
        host: ControlPlaneHost = self.settings["gpulayer_host"]
        return host

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler narrows it
        bearer = _BEARER.fullmatch(self.request.headers.get("Authorization", ""))
        control_plane = self.host.control_plane
        if bearer is not None:
            self._token_caller = await control_plane.authenticate(bearer[1])
            if self._token_caller is not None:
                self._bearer = bearer[1]
                self._prepare_for_token()
                return
        try:
            await super().prepare()
        except HTTPError as error:
            if error.status_code == 403 and self._is_host_allowed and self._token_caller is None and self._is_anonymous():
                raise _not_authenticated() from error
            raise

    def _prepare_for_token(self) -> None:
        """What Jupyter's `prepare` does, without the user: a token of ours is its own authority.

        A hub's identity provider would ask the hub about it on every poll. XSRF needs a credential that a browser adds by
        itself, and a bearer token is none. Jupyter's `CallContext` is left alone: see `forget_in_context`.
        """
        self.current_user = self._jupyter_current_user = None
        if not self.check_host():
            raise HTTPError(403)
        if "Origin" in self.request.headers or "Sec-Websocket-Origin" in self.request.headers:
            self.set_cors_headers()
            if not self.check_origin():
                raise HTTPError(404)

    @staticmethod
    def forget_in_context() -> None:
        """Take the handler out of Jupyter's `CallContext`, before a wait.

        Every timer keeps the context that it was made in, also after it was cancelled, until asyncio tidies its heap: through
        it a call that has ended would keep its handler, request and connection for an hour.
        """
        CallContext.set(CallContext.JUPYTER_HANDLER, None)

    def _is_anonymous(self) -> bool:
        return getattr(self, "_jupyter_current_user", None) is None  # `current_user` raises where Jupyter did not come to ask

    def check_host(self) -> bool:
        allowed = self.host.allowed_hosts
        self._is_host_allowed = self.request.host in allowed or bool(super().check_host())
        if self._is_host_allowed and len(allowed) < _HOSTS_REMEMBERED:
            allowed.add(self.request.host)
        return self._is_host_allowed

    def compute_etag(self) -> str | None:
        """None: no caller asks with `If-None-Match`, and a digest of every answer is dear."""
        return None

    async def authenticate(self, action: Action, roles: frozenset[Role]) -> Caller:
        """The caller: the token's, or Jupyter's user where Jupyter's authoriser allows the action.

        Raises:
            NotAuthenticated: neither is there.
            NotAuthorized: the authoriser or the token's role forbids it.
        """
        caller = self._token_caller
        if caller is None:
            user = self.current_user
            if user is None:
                raise _not_authenticated()
            if not await ensure_async(self.authorizer.is_authorized(self, user, action.value, self.auth_resource)):
                raise NotAuthorized(
                    "Jupyter's authoriser does not allow this user to do that.", asked=f"{action.value} on {self.auth_resource}"
                )
            caller = Caller(role=Role.CLIENT, user=_owner(self.identity_provider, user))
        if caller.role not in roles:
            raise NotAuthorized(
                "This kind of credential is not good for this call.",
                found=f"a {caller.role.value}'s credential",
                fix=f"It takes one of a {' or '.join(sorted(role.value for role in roles))}.",
            )
        return caller

    def _log(self) -> None:
        if access_log.is_left_out(self):
            access_log.count_request(self)
        else:
            super()._log()

    def log_exception(self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if isinstance(value, GPUlayerError):
            self.log.debug("%s %s: %s", self.request.method, self.request.path, value)
        elif isinstance(value, HTTPError):
            super().log_exception(typ, value, tb)
        else:
            self._log_reference = secrets.token_hex(4)
            self.log.error(
                "GPUlayer fault %s in %s %s",
                self._log_reference,
                self.request.method,
                self.request.path,
                exc_info=value,
            )

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        raised = kwargs.get("exc_info", (None, None, None))[1]
        error = _as_our_error(raised, self._log_reference)
        body = encode_error(error)
        if isinstance(raised, HTTPError):
            body["error"]["status"] = status_code  # Jupyter's and tornado's own refusals keep their status (405, 400)
        self.set_status(body["error"]["status"])
        if body["error"]["status"] in (429, 503):
            self.set_header("Retry-After", str(_RETRY_SECONDS))
        self.finish(json.dumps(body))


def _owner(provider: IdentityProvider, user: User) -> str:
    """Whose jobs these are: the provider's user, or this account where the provider knows no users.

    Jupyter's own providers know one token or password. Whoever has it gets a name that is drawn at random, for each browser, and
    without a cookie for each request; a name that changes owns nothing. The connection file's token is this account's as well.
    """
    return str(user.username) if _names_users(type(provider)) else settings.os_user()


_NAMING = ("get_user", "_get_user", "get_user_token", "get_user_cookie", "generate_anonymous_user", "process_login_form")
"""The methods that a user comes from: a provider that has one of its own names users."""


@functools.cache
def _names_users(provider: type[IdentityProvider]) -> bool:
    ours = (IdentityProvider, PasswordIdentityProvider)
    # With a default: one of the names is Jupyter's private one, which another version of it may lack.
    return any(getattr(provider, name, None) not in [getattr(plain, name, None) for plain in ours] for name in _NAMING)


def _not_authenticated() -> NotAuthenticated:
    return NotAuthenticated("The call carries no credential that is known here.", fix=_NO_CREDENTIAL_FIX)


def _as_our_error(raised: BaseException | None, log_reference: str | None) -> GPUlayerError:
    if isinstance(raised, GPUlayerError):
        return raised
    if isinstance(raised, HTTPError):
        kind = _JUPYTER_ERRORS.get(raised.status_code, GPUlayerError)
        return kind(str(raised))
    return InternalError(
        "A fault in GPUlayer.", fix=f"The Jupyter server's log has it under {log_reference}.", details={"reference": log_reference}
    )


def either_credential(action: Action, roles: frozenset[Role]) -> Callable[[Verb], Verb]:
    """Open a verb to a GPUlayer token of one of `roles`, or to Jupyter's identity and authoriser, and to nobody else.

    `allow_unauthenticated` only keeps Jupyter from refusing our tokens, which it can't know; what it lets through is
    refused here.
    """

    def decorate(method: Verb) -> Verb:
        @allow_unauthenticated
        @functools.wraps(method)
        async def verb(self: GPUlayerHandler, *args: Any, **kwargs: Any) -> None:
            self.caller = await self.authenticate(action, roles)
            await method(self, *args, **kwargs)

        return verb

    return decorate


def _refused(action: Action) -> Verb:
    @either_credential(action, frozenset(Role))
    async def verb(_handler: GPUlayerHandler, **_path: str) -> None:
        raise HTTPError(405)

    return verb


# A verb that a route doesn't have asks for a credential before it says so.
for _name, _action in (("get", Action.READ), ("head", Action.READ), *((name, Action.WRITE) for name in ("post", "put", "patch", "delete"))):
    setattr(GPUlayerHandler, _name, _refused(_action))
