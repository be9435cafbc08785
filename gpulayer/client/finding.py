"""Which job a person means: its id, or the name of it or of several; the newest is meant then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpulayer.client.surroundings import command_text
from gpulayer.errors import UnknownJob

if TYPE_CHECKING:
    from gpulayer.client.client import Client
    from gpulayer.client.job import Job

NAMES_LOOKED_THROUGH = 500
"""So many of the newest jobs: older ones have their ids only."""


def find_job(client: Client, wanted: str) -> Job:
    """The job with this id, or the newest of this name.

    Raises:
        UnknownJob: there is neither.
    """
    try:
        return client.job(wanted)
    except UnknownJob as unknown:
        for job in client.jobs(limit=NAMES_LOOKED_THROUGH):
            if job.name == wanted:
                return job
        raise UnknownJob(
            "There is no such job.", asked=f"a job with the id or the name {wanted!r}", fix=f"`{command_text('jobs')}` lists them."
        ) from unknown
