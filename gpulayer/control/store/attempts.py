"""Attempts in the store, with the devices that each holds while it lives, and where its ranks meet.

Every function runs inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import msgspec
from sqlalchemy import bindparam, func, select
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from gpulayer.control.store import changes, rows
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.memory import memory_of, memory_to_follow
from gpulayer.control.store.rows import AttemptRow
from gpulayer.control.store.statements import Statement
from gpulayer.control.store.tables import attempts, rendezvous, reservations
from gpulayer.errors import AttemptLost, Conflict, InvalidSpec
from gpulayer.protocol import Device, JobId, OutputFile, RankOutcome, StopReason, TaskEnvironment, TaskId, WorkerId
from gpulayer.states import AttemptState, is_legal

_devices_decoder = msgspec.json.Decoder(tuple[Device, ...])
_ranks_decoder = msgspec.json.Decoder(tuple[RankOutcome, ...])
_outputs_decoder = msgspec.json.Decoder(tuple[OutputFile, ...])
_environment_decoder = msgspec.json.Decoder(TaskEnvironment)
_one = (attempts.c.job_id == bindparam("of_job"), attempts.c.node == bindparam("of_node"), attempts.c.attempt == bindparam("of_attempt"))

_INSERT = Statement(attempts.insert().values({name: bindparam(name) for name in AttemptRow._fields}))
_ORDER_STOP = Statement(attempts.update().where(*_one).values(stop=bindparam("reason")))
_RESERVE = Statement(reservations.insert().values({column.name: bindparam(column.name) for column in reservations.c}))
_FREE = Statement(
    reservations.delete().where(
        reservations.c.worker_id == bindparam("worker_id"),
        reservations.c.job_id == bindparam("job_id"),
        reservations.c.node == bindparam("node"),
        reservations.c.attempt == bindparam("attempt"),
    )
)


def worker_topic(worker_id: WorkerId) -> str:
    """Changes of what this worker is given or told."""
    return f"worker/{worker_id}"


def rendezvous_topic(job_id: JobId) -> str:
    """The meeting place of a job's ranks becomes known."""
    return f"rendezvous/{task_id_of(job_id, 0)}"


def task_id_of(job_id: JobId, node: int) -> TaskId:
    """The id of one node's share of a job."""
    return TaskId(f"{job_id}.{node}")


def split_task_id(task_id: TaskId) -> tuple[JobId, int]:
    """The job and the node that a task's id names."""
    job_id, _, node = task_id.rpartition(".")
    if not job_id or not node.isdecimal():
        raise InvalidSpec("A task's id is '<job>.<node>'.", asked=repr(task_id))
    return JobId(job_id), int(node)


def insert_attempt(
    connection: StoreConnection,
    now: float,
    *,
    job_id: JobId,
    node: int,
    attempt: int,
    worker_id: WorkerId,
    boot: str,
    devices: Sequence[Device],
) -> AttemptRow:
    """Store a placement and reserve its devices."""
    row = AttemptRow(
        job_id=job_id,
        node=node,
        attempt=attempt,
        worker_id=worker_id,
        boot=boot,
        state=AttemptState.PLACED.value,
        stop=None,
        devices=msgspec.json.encode(devices),
        ranks=None,
        outputs=None,
        placed_at=now,
        confirmed_at=None,
        started_at=None,
        ended_at=None,
        environment=None,
    )
    _INSERT.insert(connection, **row._asdict())
    _RESERVE.run_many(
        connection,
        [{"worker_id": worker_id, "device_id": device.id, "job_id": job_id, "node": node, "attempt": attempt} for device in devices],
    )
    changes.emit(connection, worker_topic(worker_id))
    if (memory := memory_to_follow(connection)) is not None:
        memory.hold(worker_id, job_id, [device.id for device in devices])
        memory.stop_waiting(job_id)
    return row


def find_attempt(connection: StoreConnection, task_id: TaskId, attempt: int) -> AttemptRow | None:
    """The stored attempt, whatever its state."""
    job_id, node = split_task_id(task_id)
    return rows.ATTEMPT.first(connection, job_id=job_id, node=node, attempt=attempt)


def fenced_attempt(connection: StoreConnection, *, task_id: TaskId, attempt: int, worker_id: WorkerId, boot: str) -> AttemptRow:
    """The live attempt that this boot of this worker holds.

    Raises:
        AttemptLost: it is over, or was never theirs.
    """
    return check_fence(find_attempt(connection, task_id, attempt), task_id=task_id, attempt=attempt, worker_id=worker_id, boot=boot)


def check_fence(row: AttemptRow | None, *, task_id: TaskId, attempt: int, worker_id: WorkerId, boot: str) -> AttemptRow:
    """As `fenced_attempt`, for what `find_attempt` found."""
    is_theirs = row is not None and is_held_by(row, worker_id, boot)
    if row is None or not is_theirs or AttemptState(row.state).is_terminal:
        found = f"it is {row.state}" if row is not None and is_theirs else "no such attempt of this worker"
        raise AttemptLost("This attempt is over.", asked=f"task {task_id}, attempt {attempt}", found=found, fix="End its processes.")
    return row


def is_held_by(row: AttemptRow, worker_id: WorkerId, boot: str) -> bool:
    """Whether the attempt was given to this boot of this worker."""
    return bool(row.worker_id == worker_id and row.boot == boot)


def attempts_of_job(connection: StoreConnection, job_id: JobId, attempt: int) -> list[AttemptRow]:
    """All nodes' attempts with this number, by node."""
    return rows.ATTEMPTS_OF_JOB.all(connection, job_id=job_id, attempt=attempt)


def newest_attempts(connection: StoreConnection, job_id: JobId) -> list[AttemptRow]:
    """The nodes' attempts with the highest number that was ever placed, by node."""
    return rows.NEWEST_ATTEMPTS.all(connection, job_id=job_id)


def count_confirmed(connection: StoreConnection, job_id: JobId) -> int:
    """How many attempts of a job some worker took up."""
    confirmed = (attempts.c.job_id == job_id, attempts.c.confirmed_at.is_not(None))
    return int(connection.execute(select(func.count(attempts.c.attempt.distinct())).where(*confirmed)).scalar_one())


def live_attempts_of_worker(connection: StoreConnection, worker_id: WorkerId) -> list[AttemptRow]:
    """What a worker holds, oldest placement first."""
    return rows.LIVE_ATTEMPTS.all(connection, worker_id=worker_id)


def move_attempt(connection: StoreConnection, row: AttemptRow, reaches: AttemptState, **values: Any) -> AttemptRow:
    """Make one legal move of this attempt, only from the state that this row has; its end releases its devices.

    Raises:
        Conflict: it is in another state.
    """
    assert is_legal(AttemptState(row.state), reaches), f"{row.state} → {reaches} is not in the table of moves"
    moved = _move_statement(tuple(values)).run(
        connection,
        of_job=row.job_id,
        of_node=row.node,
        of_attempt=row.attempt,
        leaves=row.state,
        to_state=reaches.value,
        **{f"to_{name}": value for name, value in values.items()},
    )
    if moved != 1:
        raise Conflict("The attempt has moved on.", asked=f"{row.job_id}.{row.node}, attempt {row.attempt}: {row.state} → {reaches}")
    if reaches.is_terminal:
        _FREE.run(connection, worker_id=row.worker_id, job_id=row.job_id, node=row.node, attempt=row.attempt)
        if (memory := memory_to_follow(connection)) is not None:
            memory.release(row.worker_id, row.job_id)
    return row._replace(state=reaches.value, **values)


def order_stop(connection: StoreConnection, row: AttemptRow, reason: StopReason) -> None:
    """Order a live attempt to stop; told to its worker until it has ended. Only `kill` overrides an earlier order."""
    if row.stop == "kill" or (row.stop is not None and reason != "kill"):
        return
    _ORDER_STOP.run(connection, of_job=row.job_id, of_node=row.node, of_attempt=row.attempt, reason=reason)
    changes.emit(connection, worker_topic(row.worker_id))


def held_devices(connection: StoreConnection) -> dict[WorkerId, dict[str, JobId]]:
    """Worker → device → the job that holds it."""
    if (memory := memory_of(connection)) is not None:
        return memory.held
    held: dict[WorkerId, dict[str, JobId]] = {}
    for reservation in rows.RESERVATIONS.all(connection):
        held.setdefault(reservation.worker_id, {})[reservation.device_id] = reservation.job_id
    return held


def put_rendezvous(connection: StoreConnection, row: AttemptRow, *, address: str, port: int) -> None:
    """Store where the ranks of this attempt number meet."""
    insert = sqlite_insert(rendezvous).values(job_id=row.job_id, attempt=row.attempt, address=address, port=port)
    connection.execute(insert.on_conflict_do_update(index_elements=["job_id", "attempt"], set_={"address": address, "port": port}))
    changes.emit(connection, rendezvous_topic(row.job_id))


def find_rendezvous(connection: StoreConnection, row: AttemptRow) -> tuple[str, int] | None:
    """Address and port where the ranks of this attempt number meet, once known."""
    found = connection.execute(
        select(rendezvous.c.address, rendezvous.c.port).where(rendezvous.c.job_id == row.job_id, rendezvous.c.attempt == row.attempt)
    ).one_or_none()
    return None if found is None else (found.address, found.port)


@lru_cache(maxsize=4096)
def decode_devices(encoded: bytes) -> tuple[Device, ...]:
    """Stored devices; a fleet's are few, and the same each time."""
    return _devices_decoder.decode(encoded)


def devices_of(row: AttemptRow) -> tuple[Device, ...]:
    """The devices that the attempt was given."""
    return decode_devices(row.devices)


def ranks_of(row: AttemptRow) -> tuple[RankOutcome, ...]:
    """How its ranks ended; empty while they have not."""
    return () if row.ranks is None else _ranks_decoder.decode(row.ranks)


def outputs_of(row: AttemptRow) -> tuple[OutputFile, ...]:
    """What it left in its output folder."""
    return () if row.outputs is None else _outputs_decoder.decode(row.outputs)


def environment_of(row: AttemptRow) -> TaskEnvironment | None:
    """What its ranks found, where that was told."""
    return None if row.environment is None else _environment_decoder.decode(row.environment)


@cache
def _move_statement(names: tuple[str, ...]) -> Statement:
    values: dict[str, Any] = {name: bindparam(f"to_{name}") for name in names}
    return Statement(attempts.update().where(*_one, attempts.c.state == bindparam("leaves")).values(state=bindparam("to_state"), **values))
