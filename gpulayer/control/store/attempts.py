"""Attempts in the store, with the devices that each holds while it lives, and where its ranks meet.

Every function runs inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, func, select
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from gpulayer.control.store import changes
from gpulayer.control.store.tables import attempts, rendezvous, reservations
from gpulayer.errors import AttemptLost, Conflict, InvalidSpec
from gpulayer.protocol import Device, JobId, OutputFile, RankOutcome, StopReason, TaskId, WorkerId
from gpulayer.states import AttemptState, is_legal

AttemptRow = Row[Any]

LIVE_STATES = tuple(state.value for state in AttemptState if not state.is_terminal)

_devices_decoder = msgspec.json.Decoder(tuple[Device, ...])
_ranks_decoder = msgspec.json.Decoder(tuple[RankOutcome, ...])
_outputs_decoder = msgspec.json.Decoder(tuple[OutputFile, ...])


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
    connection: Connection, now: float, *, job_id: JobId, node: int, attempt: int, worker_id: WorkerId, boot: str, devices: Sequence[Device]
) -> None:
    """Store a placement and reserve its devices."""
    connection.execute(
        attempts.insert().values(
            job_id=job_id,
            node=node,
            attempt=attempt,
            worker_id=worker_id,
            boot=boot,
            state=AttemptState.PLACED.value,
            devices=msgspec.json.encode(devices),
            placed_at=now,
        )
    )
    connection.execute(
        reservations.insert(),
        [{"worker_id": worker_id, "device_id": device.id, "job_id": job_id, "node": node, "attempt": attempt} for device in devices],
    )
    changes.emit(connection, worker_topic(worker_id))


def find_attempt(connection: Connection, task_id: TaskId, attempt: int) -> AttemptRow | None:
    """The stored attempt, whatever its state."""
    job_id, node = split_task_id(task_id)
    query = select(attempts).where(attempts.c.job_id == job_id, attempts.c.node == node, attempts.c.attempt == attempt)
    return connection.execute(query).one_or_none()


def fenced_attempt(connection: Connection, *, task_id: TaskId, attempt: int, worker_id: WorkerId, boot: str) -> AttemptRow:
    """The live attempt that this boot of this worker holds.

    Raises:
        AttemptLost: it is over, or was never theirs.
    """
    row = find_attempt(connection, task_id, attempt)
    if row is None or not is_held_by(row, worker_id, boot) or AttemptState(row.state).is_terminal:
        found = "no such attempt of this worker" if row is None or not is_held_by(row, worker_id, boot) else f"it is {row.state}"
        raise AttemptLost("This attempt is over.", asked=f"task {task_id}, attempt {attempt}", found=found, fix="End its processes.")
    return row


def is_held_by(row: AttemptRow, worker_id: WorkerId, boot: str) -> bool:
    """Whether the attempt was given to this boot of this worker."""
    return bool(row.worker_id == worker_id and row.boot == boot)


def attempts_of_job(connection: Connection, job_id: JobId, attempt: int) -> list[AttemptRow]:
    """All nodes' attempts with this number, by node."""
    query = select(attempts).where(attempts.c.job_id == job_id, attempts.c.attempt == attempt).order_by(attempts.c.node)
    return list(connection.execute(query))


def newest_attempts(connection: Connection, job_id: JobId) -> list[AttemptRow]:
    """The nodes' attempts with the highest number that was ever placed, by node."""
    newest = select(func.max(attempts.c.attempt)).where(attempts.c.job_id == job_id).scalar_subquery()
    query = select(attempts).where(attempts.c.job_id == job_id, attempts.c.attempt == newest).order_by(attempts.c.node)
    return list(connection.execute(query))


def count_confirmed(connection: Connection, job_id: JobId) -> int:
    """How many attempts of a job some worker took up."""
    confirmed = (attempts.c.job_id == job_id, attempts.c.confirmed_at.is_not(None))
    return int(connection.execute(select(func.count(attempts.c.attempt.distinct())).where(*confirmed)).scalar_one())


def live_attempts_of_worker(connection: Connection, worker_id: WorkerId) -> list[AttemptRow]:
    """What a worker holds, oldest placement first."""
    query = (
        select(attempts)
        .where(attempts.c.worker_id == worker_id, attempts.c.state.in_(LIVE_STATES))
        .order_by(attempts.c.placed_at, attempts.c.job_id, attempts.c.node)
    )
    return list(connection.execute(query))


def workers_with_attempts(connection: Connection, *, confirmed_only: bool = False) -> set[WorkerId]:
    """Workers that hold a live attempt; with `confirmed_only`, one that they said they know."""
    states = [state for state in LIVE_STATES if not confirmed_only or state != AttemptState.PLACED.value]
    return set(connection.execute(select(attempts.c.worker_id).where(attempts.c.state.in_(states)).distinct()).scalars())


def move_attempt(connection: Connection, row: AttemptRow, leaves: AttemptState, reaches: AttemptState, **values: Any) -> None:
    """Make one legal move of this attempt, only from the state that it leaves; its end releases its devices.

    Raises:
        Conflict: it is in another state.
    """
    assert is_legal(leaves, reaches), f"{leaves} → {reaches} is not in the table of moves"
    where = (attempts.c.job_id == row.job_id, attempts.c.node == row.node, attempts.c.attempt == row.attempt)
    result = connection.execute(attempts.update().where(*where, attempts.c.state == leaves.value).values(state=reaches.value, **values))
    if result.rowcount != 1:
        raise Conflict("The attempt has moved on.", asked=f"{row.job_id}.{row.node}, attempt {row.attempt}: {leaves} → {reaches}")
    if reaches.is_terminal:
        connection.execute(
            reservations.delete().where(
                reservations.c.job_id == row.job_id, reservations.c.node == row.node, reservations.c.attempt == row.attempt
            )
        )


def order_stop(connection: Connection, row: AttemptRow, reason: StopReason) -> None:
    """Order a live attempt to stop; told to its worker until it has ended. Only `kill` overrides an earlier order."""
    if row.stop == "kill" or (row.stop is not None and reason != "kill"):
        return
    connection.execute(
        attempts.update()
        .where(attempts.c.job_id == row.job_id, attempts.c.node == row.node, attempts.c.attempt == row.attempt)
        .values(stop=reason)
    )
    changes.emit(connection, worker_topic(row.worker_id))


def held_devices(connection: Connection) -> dict[WorkerId, dict[str, JobId]]:
    """Worker → device → the job that holds it."""
    held: dict[WorkerId, dict[str, JobId]] = {}
    for row in connection.execute(select(reservations)):
        held.setdefault(row.worker_id, {})[row.device_id] = row.job_id
    return held


def put_rendezvous(connection: Connection, row: AttemptRow, *, address: str, port: int) -> None:
    """Store where the ranks of this attempt number meet."""
    insert = sqlite_insert(rendezvous).values(job_id=row.job_id, attempt=row.attempt, address=address, port=port)
    connection.execute(insert.on_conflict_do_update(index_elements=["job_id", "attempt"], set_={"address": address, "port": port}))
    changes.emit(connection, rendezvous_topic(row.job_id))


def find_rendezvous(connection: Connection, row: AttemptRow) -> tuple[str, int] | None:
    """Address and port where the ranks of this attempt number meet, once known."""
    found = connection.execute(
        select(rendezvous.c.address, rendezvous.c.port).where(rendezvous.c.job_id == row.job_id, rendezvous.c.attempt == row.attempt)
    ).one_or_none()
    return None if found is None else (found.address, found.port)


def devices_of(row: AttemptRow) -> tuple[Device, ...]:
    """The devices that the attempt was given."""
    return _devices_decoder.decode(row.devices)


def ranks_of(row: AttemptRow) -> tuple[RankOutcome, ...]:
    """How its ranks ended; empty while they have not."""
    return () if row.ranks is None else _ranks_decoder.decode(row.ranks)


def outputs_of(row: AttemptRow) -> tuple[OutputFile, ...]:
    """What it left in its output folder."""
    return () if row.outputs is None else _outputs_decoder.decode(row.outputs)
