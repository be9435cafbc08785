"""How workers come and go: registration, leave, drain, and leases that ran out; each function is one transaction's work."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from sqlalchemy import func, select

from gpulayer.calls import Role
from gpulayer.control import endings, tokens
from gpulayer.control.leases import Lease
from gpulayer.control.placing import place_queue
from gpulayer.control.presence import presence_of
from gpulayer.control.store import attempts, workers
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.memory import memory_of
from gpulayer.control.store.rows import WorkerRow
from gpulayer.control.store.statements import Query
from gpulayer.control.store.tables import attempts as attempts_table
from gpulayer.control.tokens import Caller
from gpulayer.errors import Conflict, NotAuthorized, ProtocolMismatch
from gpulayer.protocol import PROTOCOL_VERSION, RegisterWorker, WorkerId, works_with
from gpulayer.states import AttemptState

_BUSY = Query(
    select(func.group_concat(attempts_table.c.worker_id.distinct())).where(
        attempts_table.c.ended_at.is_(None), attempts_table.c.state != AttemptState.PLACED.value
    ),
    lambda row: frozenset(str(next(iter(row)) or "").split(",")),  # one row: each further one would wait for the interpreter
)


def check_protocol(spoken: int) -> None:
    """Raise `ProtocolMismatch` unless the two versions work together: the same, or one apart."""
    if not works_with(spoken):
        older, newer = ("worker", "control plane") if spoken < PROTOCOL_VERSION else ("control plane", "worker")
        raise ProtocolMismatch(
            "Worker and control plane speak versions of the protocol that do not work together.",
            asked=f"protocol {spoken}",
            found=f"protocol {PROTOCOL_VERSION}",
            fix=f"Upgrade the {older} to the {newer}'s version of GPUlayer.",
        )


def register_worker(connection: StoreConnection, now: float, *, request: RegisterWorker, caller: Caller) -> tuple[WorkerId, str | None]:
    """Store a worker that joins or comes back, and place what waits; returns its id and, where it joined, its token.

    A worker that comes back with another boot loses what the earlier one held. A join token is used up in this transaction.

    Raises:
        NotAuthorized: a worker token that speaks for another worker, or a client token for one of another user or host.
        NotAuthenticated: the join token was used.
        UnknownWorker: the worker says that it comes back, and never was here.
        Conflict: another live worker of the same host offers one of these devices.
    """
    worker_id = _worker_id(connection, now, request, caller)
    earlier = workers.find_worker(connection, worker_id)
    if earlier is not None and earlier.boot != request.boot:
        endings.lose_attempts(connection, now, earlier, "was started again")
    _refuse_held_devices(connection, now, request, worker_id)
    same_boot = earlier if earlier is not None and earlier.boot == request.boot else None
    workers.put_worker(
        connection,
        worker_id,
        boot=request.boot,
        name=request.name,
        owner=caller.user,
        host=request.host,
        boot_id=request.boot_id,
        address=request.address,
        python=request.python,
        version=request.version,
        protocol=request.protocol,
        devices=msgspec.json.encode(request.devices),
        frameworks=msgspec.json.encode(request.frameworks),
        local=int(request.local),
        state=workers.DRAINING if same_boot is not None and same_boot.state == workers.DRAINING else workers.ALIVE,
        registered_at=now if same_boot is None else same_boot.registered_at,
        last_seen_at=now,
    )
    presence_of(connection, now).note_largest_groups(connection)
    place_queue(connection, now)
    if caller.role is Role.WORKER:
        tokens.renew_worker_token(connection, now, worker_id)
        return worker_id, None
    if caller.trusted:
        return worker_id, None
    valid = tokens.WORKER_TOKEN_SECONDS
    token = tokens.issue(connection, now, role=Role.WORKER, user=caller.user, valid_seconds=valid, worker_id=worker_id)
    return worker_id, token


def leave_worker(connection: StoreConnection, now: float, *, worker_id: WorkerId, boot: str) -> None:
    """This boot takes its leave: what it holds is lost at once. Said again, or by an earlier boot, it changes nothing."""
    worker = workers.worker_row(connection, worker_id)
    if worker.boot != boot:
        return
    endings.lose_attempts(connection, now, worker, "left")
    workers.set_state(connection, worker_id, workers.GONE, boot=workers.LEFT)
    place_queue(connection, now)


def drain_worker(connection: StoreConnection, worker_id: WorkerId) -> None:
    """Give a worker nothing more; what it holds goes on."""
    worker = workers.worker_row(connection, worker_id)
    if worker.state == workers.ALIVE:
        workers.set_state(connection, worker_id, workers.DRAINING)


def lose_worker(connection: StoreConnection, now: float, lease: Lease) -> None:
    """A lease is over: the worker is gone and what it holds is lost, unless it has spoken since."""
    worker = workers.worker_row(connection, lease.worker_id)
    if worker.boot != lease.boot or worker.renewals != lease.renewals or worker.state == workers.GONE:
        return
    endings.lose_attempts(connection, now, worker, f"has not been heard since {endings.utc_text(worker.last_seen_at)}")
    workers.set_state(connection, lease.worker_id, workers.GONE)
    place_queue(connection, now)


class ReadLeases(NamedTuple):
    """What the store says of leases.

    Args:
        rows: the workers that are not gone; unless it is whole, those that may have spoken since the last reading.
        gone: workers that went since then; none where it is whole.
        busy: the ids of those that confirmed an attempt which has not ended.
    """

    is_whole: bool
    rows: list[WorkerRow]
    gone: list[WorkerId]
    busy: frozenset[str]


def read_leases(connection: StoreConnection, *, whole: bool) -> ReadLeases:
    """Read, from the writer's memory, what a look at the leases takes; the whole where the memory was read anew as well."""
    memory = memory_of(connection)
    assert memory is not None, "only the writer has a memory"
    busy = _BUSY.first(connection) or frozenset()
    spoken = memory.take_spoken()
    if whole or spoken is None:
        return ReadLeases(True, list(memory.workers.values()), [], busy)
    there = memory.workers
    return ReadLeases(
        False, [there[worker_id] for worker_id in spoken if worker_id in there], [one for one in spoken if one not in there], busy
    )


def _worker_id(connection: StoreConnection, now: float, request: RegisterWorker, caller: Caller) -> WorkerId:
    if caller.role is Role.JOIN and not caller.trusted:
        # A join token makes a worker; it never takes over one that exists.
        assert caller.token_digest is not None
        return tokens.use_join_token(connection, now, caller.token_digest, boot=request.boot, worker_id=workers.new_worker_id())
    if request.worker_id is None:
        if caller.role is Role.WORKER and caller.worker_id is not None:
            return caller.worker_id
        return workers.new_worker_id()
    if caller.role is Role.WORKER and not caller.trusted and caller.worker_id != request.worker_id:
        raise NotAuthorized("This token speaks for another worker.", asked=f"worker {request.worker_id}")
    row = workers.worker_row(connection, request.worker_id)
    if caller.role is Role.CLIENT and not caller.trusted and (row.owner, row.boot_id) != (caller.user, request.boot_id):
        # Registering over a worker ends what it holds and gives out a token for it.
        raise NotAuthorized(
            "This worker belongs to another user or host.",
            asked=f"worker {request.worker_id}",
            fix="Come back with the worker's own token, or register without an id, as a new worker.",
        )
    return WorkerId(row.id)


def _refuse_held_devices(connection: StoreConnection, now: float, request: RegisterWorker, worker_id: WorkerId) -> None:
    """Workers of one host divide its devices; a `cpu` device is a rank's place, and a simulated one nobody's."""
    offered = {device.id for device in request.devices if device.accelerator != "cpu" and not device.simulated}
    if not offered:
        return
    for row in workers.workers_of_host(connection, request.boot_id):
        if row.id == worker_id or _is_given_up(connection, row, now):
            continue
        taken = sorted(offered & {device.id for device in workers.devices_of(row) if not device.simulated})
        if taken:
            raise Conflict(
                "Another worker of this host offers the same devices.",
                asked=", ".join(taken),
                found=f"worker {row.name!r}",
                fix="Stop that worker, or divide the devices between the two.",
            )


def _is_given_up(connection: StoreConnection, row: WorkerRow, now: float) -> bool:
    return workers.is_silent(row, now) and not attempts.live_attempts_of_worker(connection, row.id)
