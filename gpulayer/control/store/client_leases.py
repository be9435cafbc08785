"""Client leases in the store: the jobs that end with whoever submitted them, and how often that was heard since.

Every function runs inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import select

from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.tables import client_leases, jobs
from gpulayer.protocol import JobId


class ClientLease(NamedTuple):
    """One job's lease; `has_ended`: the job has, so that nobody has to renew it."""

    job_id: JobId
    seconds: float
    renewals: int
    has_ended: bool


def insert_lease(connection: StoreConnection, job_id: JobId, seconds: float) -> None:
    """The job ends once its lease has run out."""
    connection.execute(client_leases.insert().values(job_id=job_id, seconds=seconds, renewals=0))


def renew_lease(connection: StoreConnection, job_id: JobId) -> bool:
    """Its client is alive; whether the job has a lease."""
    renewed = client_leases.update().where(client_leases.c.job_id == job_id).values(renewals=client_leases.c.renewals + 1)
    return connection.execute(renewed).rowcount > 0


def delete_lease(connection: StoreConnection, job_id: JobId) -> None:
    """Nobody has to renew it any more."""
    connection.execute(client_leases.delete().where(client_leases.c.job_id == job_id))


def read_leases(connection: StoreConnection) -> list[ClientLease]:
    """All there are."""
    query = select(client_leases.c.job_id, client_leases.c.seconds, client_leases.c.renewals, jobs.c.ended_at.is_not(None)).join(
        jobs, jobs.c.id == client_leases.c.job_id
    )
    rows: Iterable[tuple[str, float, int, bool]] = map(tuple, connection.execute(query))
    return [ClientLease(JobId(job_id), seconds, renewals, ended) for job_id, seconds, renewals, ended in rows]
