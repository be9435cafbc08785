"""Workers in the store: who they are, what they offer, how often they were heard, and the largest groups ever alive at once.

Every function runs inside the caller's transaction.
"""

from __future__ import annotations

import secrets
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import bindparam, select
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from gpulayer.control.store import changes, rows
from gpulayer.control.store.attempts import decode_devices, worker_topic
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.memory import memory_of, memory_to_follow
from gpulayer.control.store.rows import WorkerRow
from gpulayer.control.store.statements import Statement
from gpulayer.control.store.tables import home, largest_groups, workers
from gpulayer.errors import AttemptLost, UnknownWorker
from gpulayer.protocol import Device, WorkerId
from gpulayer.settings import IDLE_LEASE_SECONDS

WORKERS_TOPIC = "workers"
ALIVE: Final = "alive"
DRAINING: Final = "draining"
GONE: Final = rows.GONE
LEFT = ""
"""The boot of a worker that took its leave: no boot that speaks is this one."""


class LargestGroup(NamedTuple):
    """So many workers were alive at once, each with at least so many devices of a kind, all real or all simulated."""

    accelerator: str
    simulated: bool
    devices: int
    workers: int

    def __str__(self) -> str:
        kind = f"simulated {self.accelerator}" if self.simulated else self.accelerator
        return f"{self.workers} {'worker' if self.workers == 1 else 'workers'} with {self.devices} × {kind}"


_RENEW = Statement(
    workers.update()
    .where(workers.c.id == bindparam("worker_id"), workers.c.boot == bindparam("of_boot"))
    .values(renewals=workers.c.renewals + 1, last_seen_at=bindparam("now"), state=bindparam("to_state"))
)
_said = [name for name in WorkerRow._fields if name not in ("id", "renewals")]
_insert = sqlite_insert(workers).values({"id": bindparam("id"), "renewals": 1, **{name: bindparam(name) for name in _said}})
_PUT = Statement(
    _insert.on_conflict_do_update(
        index_elements=["id"], set_={**{name: _insert.excluded[name] for name in _said}, "renewals": workers.c.renewals + 1}
    )
)
_insert_group = sqlite_insert(largest_groups).values({name: bindparam(name) for name in LargestGroup._fields})
_PUT_LARGEST_GROUP = Statement(
    _insert_group.on_conflict_do_update(
        index_elements=["accelerator", "simulated", "devices"],
        set_={"workers": _insert_group.excluded.workers},
        where=largest_groups.c.workers < _insert_group.excluded.workers,
    )
)
_frameworks_decoder = msgspec.json.Decoder(dict[str, str])


def new_worker_id() -> WorkerId:
    """An id that no worker has."""
    return WorkerId("w" + secrets.token_hex(6))


def workers_of_host(connection: StoreConnection, boot_id: str) -> list[WorkerRow]:
    """The workers of one host that are not gone, in the order of their registration; asked by the writer."""
    memory = memory_of(connection)
    assert memory is not None, "only the writer has a memory"
    return sorted((memory.workers[worker_id] for worker_id in memory.of_host.get(boot_id, ())), key=lambda row: (row.registered_at, row.id))


def find_worker(connection: StoreConnection, worker_id: WorkerId) -> WorkerRow | None:
    """The stored worker, if it ever registered."""
    memory = memory_of(connection)
    remembered = None if memory is None else memory.workers.get(worker_id)
    return remembered or rows.WORKER.first(connection, worker_id=worker_id)


def worker_row(connection: StoreConnection, worker_id: WorkerId) -> WorkerRow:
    """The stored worker.

    Raises:
        UnknownWorker: it never registered.
    """
    row = find_worker(connection, worker_id)
    if row is None:
        raise UnknownWorker("There is no such worker.", asked=f"worker {worker_id}", fix="Register it first.")
    return row


def all_workers(connection: StoreConnection, *, include_gone: bool = False) -> list[WorkerRow]:
    """Workers in the order of their registration."""
    return (rows.WORKERS if include_gone else rows.PRESENT_WORKERS).all(connection)


def ever_provided(connection: StoreConnection) -> list[frozenset[str]]:
    """What workers of this home report, or reported when they were there last: each set of names once."""
    return [_decode_provided(encoded) for encoded in connection.execute(select(workers.c.frameworks).distinct()).scalars()]


def has_foreign(connection: StoreConnection, now: float) -> bool:
    """Whether a worker is alive that no control plane of this home has started."""
    is_there = (workers.c.state != GONE, workers.c.local == 0, workers.c.last_seen_at >= now - IDLE_LEASE_SECONDS)
    return connection.execute(select(workers.c.id).where(*is_there).limit(1)).first() is not None


def local_workers(connection: StoreConnection, now: float) -> list[WorkerRow]:
    """Workers that take work and were started by a control plane of this home on its own machine."""
    is_there = (workers.c.state == ALIVE, workers.c.local != 0, workers.c.last_seen_at >= now - IDLE_LEASE_SECONDS)
    return [WorkerRow._make(row) for row in connection.execute(select(workers).where(*is_there))]


def provided_by_interpreter(connection: StoreConnection) -> dict[str, frozenset[str]]:
    """What workers report that control planes of this home have started, by their interpreter, as the last one of each does."""
    found = connection.execute(select(workers.c.python, workers.c.frameworks).where(workers.c.local != 0).order_by(workers.c.last_seen_at))
    return {row.python: _decode_provided(row.frameworks) for row in found}


def put_worker(connection: StoreConnection, worker_id: WorkerId, **values: Any) -> None:
    """Store a worker, anew or over its earlier registration: all of its columns but the count of renewals."""
    _PUT.run(connection, id=worker_id, **values)
    _follow(connection, worker_id)
    changes.emit(connection, WORKERS_TOPIC, worker_topic(worker_id))


def renew(connection: StoreConnection, now: float, *, worker_id: WorkerId, boot: str) -> bool:
    """Count a word from this boot of the worker; True when it had counted as gone or silent, and can take work again.

    Raises:
        UnknownWorker: it never registered.
        AttemptLost: the worker speaks through another boot, or has left.
    """
    row = worker_row(connection, worker_id)
    check_boot(row, boot)
    was_away = row.state == GONE or is_silent(row, now)
    state = ALIVE if row.state == GONE else row.state
    _RENEW.run(connection, worker_id=worker_id, of_boot=boot, now=now, to_state=state)
    if (memory := memory_to_follow(connection)) is not None:
        heard = row._replace(renewals=row.renewals + 1, last_seen_at=now, state=state)
        if was_away or now < row.last_seen_at:
            memory.put_worker(heard)
        else:
            memory.hear_worker(heard)
    if was_away:
        changes.emit(connection, WORKERS_TOPIC)
    return was_away


def check_boot(row: WorkerRow, boot: str) -> None:
    """Raise `AttemptLost` unless the worker speaks through this boot."""
    if row.boot != boot:
        raise AttemptLost(
            "This start of the worker is over.",
            asked=f"worker {row.id}, boot {boot}",
            found="it has left" if row.boot == LEFT else "it was started again since",
            fix="End its processes, and register again.",
        )


def set_state(connection: StoreConnection, worker_id: WorkerId, state: str, **values: Any) -> None:
    """Change a worker's state, and wake what it holds open."""
    connection.execute(workers.update().where(workers.c.id == worker_id).values(state=state, **values))
    _follow(connection, worker_id)
    changes.emit(connection, WORKERS_TOPIC, worker_topic(worker_id))


def is_silent(row: WorkerRow, now: float) -> bool:
    """Not heard for a whole idle lease, by wall time: nothing is placed there until it speaks again.

    This judges nobody: what the worker holds stays its own until its lease is over (`control/leases.py`).
    """
    return bool(now - row.last_seen_at > IDLE_LEASE_SECONDS)


def put_largest_group(connection: StoreConnection, group: LargestGroup) -> None:
    """Store that so many workers are alive at once, unless more were before."""
    _PUT_LARGEST_GROUP.run(connection, **group._asdict())


def read_largest_groups(connection: StoreConnection) -> list[LargestGroup]:
    """What this home has ever seen at once, by kind, the largest workers last."""
    columns = largest_groups.c
    rows = connection.execute(select(largest_groups).order_by(columns.accelerator, columns.simulated, columns.devices))
    return [
        LargestGroup(accelerator=row.accelerator, simulated=bool(row.simulated), devices=row.devices, workers=row.workers) for row in rows
    ]


def devices_of(row: WorkerRow) -> tuple[Device, ...]:
    """All devices that the worker offers."""
    return decode_devices(row.devices)


def frameworks_of(row: WorkerRow) -> dict[str, str]:
    """Frameworks and capabilities with their versions."""
    return _decode_frameworks(row.frameworks)


def provided_by(row: WorkerRow) -> frozenset[str]:
    """Names of the frameworks and capabilities that it reports."""
    return _decode_provided(row.frameworks)


@lru_cache(maxsize=1024)
def _decode_provided(encoded: bytes) -> frozenset[str]:
    return frozenset(_decode_frameworks(encoded))


@lru_cache(maxsize=1024)
def _decode_frameworks(encoded: bytes) -> dict[str, str]:
    return _frameworks_decoder.decode(encoded)


def _follow(connection: StoreConnection, worker_id: WorkerId) -> None:
    if (memory := memory_to_follow(connection)) is not None:
        row = rows.WORKER.first(connection, worker_id=worker_id)
        assert row is not None, "it was written a moment ago"
        memory.put_worker(row)


def read_home_id(connection: StoreConnection) -> str:
    """The id that this home got when it was made."""
    return str(connection.execute(select(home.c.value).where(home.c.key == "id")).scalar_one())
