"""Who calls: bearer tokens, stored only as their SHA-256, and what each kind is good for.

The functions that take a connection run in the writer's or a reader's thread. Tokens never stand in logs or error texts.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Row, bindparam, select

from gpulayer.calls import Role
from gpulayer.control.store import changes
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.statements import Statement
from gpulayer.control.store.tables import tokens
from gpulayer.errors import NotAuthenticated
from gpulayer.protocol import WorkerId

TOKENS_TOPIC = "tokens"
WORKER_TOKEN_SECONDS = 30 * 86400.0
"""A worker that comes back within this registers with its own token, which starts the time anew."""
KEPT_CALLERS = 20_000
"""Twice the workers of a large fleet, in some megabytes."""

_PREFIXES = {Role.CLIENT: "gpc_", Role.WORKER: "gpw_", Role.JOIN: "gpj_"}

_ISSUED = ("digest", "kind", "owner", "worker_id", "created_at", "expires_at")
_ISSUE = Statement(tokens.insert().values({name: bindparam(name) for name in _ISSUED}))


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who makes a call.

    Args:
        user: whose jobs and workers these are.
        worker_id: the one worker that a worker token speaks for.
        trusted: code of the control plane's own process, which may speak for every role and worker.
        token_digest: of a join token, which is used up by a registration.
    """

    role: Role
    user: str
    worker_id: WorkerId | None = None
    trusted: bool = False
    token_digest: str | None = None


def digest_of(token: str) -> str:
    """What is stored in place of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def issue(
    connection: StoreConnection, now: float, *, role: Role, user: str, valid_seconds: float | None, worker_id: WorkerId | None = None
) -> str:
    """Make a token and return it, the only time that it is seen."""
    token = _PREFIXES[role] + secrets.token_urlsafe(32)
    _ISSUE.run(
        connection,
        digest=digest_of(token),
        kind=role.value,
        owner=user,
        worker_id=worker_id,
        created_at=now,
        expires_at=None if valid_seconds is None else now + valid_seconds,
    )
    return token


def revoke(connection: StoreConnection, now: float, digest: str) -> bool:
    """End a token for good; False where there is none, or it is ended already."""
    result = connection.execute(tokens.update().where(tokens.c.digest == digest, tokens.c.revoked_at.is_(None)).values(revoked_at=now))
    if result.rowcount:
        changes.emit(connection, TOKENS_TOPIC)
    return bool(result.rowcount)


def renew_worker_token(connection: StoreConnection, now: float, worker_id: WorkerId) -> None:
    """Start the time of this worker's token anew; who remembers the earlier end asks the store once that has come."""
    connection.execute(
        tokens.update()
        .where(tokens.c.worker_id == worker_id, tokens.c.kind == Role.WORKER.value, tokens.c.revoked_at.is_(None))
        .values(expires_at=now + WORKER_TOKEN_SECONDS)
    )


def use_join_token(connection: StoreConnection, now: float, digest: str, *, boot: str, worker_id: WorkerId) -> WorkerId:
    """Use the token up for this worker, and return the worker's id.

    A registration whose answer got lost is repeated by the same boot; it gets the id of the first time.

    Raises:
        NotAuthenticated: it was used by another boot, or is not valid any more.
    """
    row = connection.execute(select(tokens).where(tokens.c.digest == digest)).one_or_none()
    if row is None or not _is_valid(row, now) or (row.used_boot is not None and row.used_boot != boot):
        raise NotAuthenticated("This join token was used, or is over; it is good for one worker, once.", fix="Ask for another join token.")
    if row.used_boot == boot:
        return WorkerId(row.worker_id)
    connection.execute(tokens.update().where(tokens.c.digest == digest).values(used_boot=boot, worker_id=worker_id))
    return worker_id


def workers_joined_by(connection: StoreConnection, join_tokens: Collection[str]) -> set[WorkerId]:
    """The workers that registered with one of these join tokens."""
    digests = [digest_of(token) for token in join_tokens]
    query = select(tokens.c.worker_id).where(tokens.c.digest.in_(digests), tokens.c.used_boot.is_not(None))
    return set(connection.execute(query).scalars())


class TokenCache:
    """Callers by token digest, so that a call does not cost a question to the store; emptied when any token is revoked.

    It holds the `KEPT_CALLERS` that called last, and none with a join token, which is used once.
    """

    def __init__(self) -> None:
        self._callers: OrderedDict[str, tuple[Caller, float | None]] = OrderedDict()
        self._generation = 0

    def __len__(self) -> int:
        return len(self._callers)

    @property
    def generation(self) -> int:
        """Changes with `forget`: what was read from the store before that is not kept after it."""
        return self._generation

    def forget(self) -> None:
        self._callers.clear()
        self._generation += 1

    def find(self, digest: str, now: float) -> Caller | None:
        known = self._callers.get(digest)
        if known is None:
            return None
        caller, expires_at = known
        if expires_at is not None and now >= expires_at:
            del self._callers[digest]
            return None
        self._callers.move_to_end(digest)
        return caller

    def keep(self, digest: str, caller: Caller, expires_at: float | None, *, generation: int) -> None:
        if generation != self._generation or caller.role is Role.JOIN:
            return
        self._callers[digest] = (caller, expires_at)
        if len(self._callers) > KEPT_CALLERS:
            self._callers.popitem(last=False)


def find_caller(connection: StoreConnection, now: float, digest: str) -> tuple[Caller, float | None] | None:
    """Whom a token's digest stands for, and until when; None where it is unknown, expired or revoked."""
    row = connection.execute(select(tokens).where(tokens.c.digest == digest)).one_or_none()
    if row is None or not _is_valid(row, now):
        return None
    role = Role(row.kind)
    caller = Caller(
        role=role,
        user=row.owner,
        worker_id=row.worker_id if role is Role.WORKER else None,
        token_digest=digest if role is Role.JOIN else None,
    )
    return caller, row.expires_at


def _is_valid(row: Row[tuple[object, ...]], now: float) -> bool:
    return row.revoked_at is None and (row.expires_at is None or now < row.expires_at)
