"""Workers that the control plane's own machine could add: how many more would let a job run, and as what they are started.

`Client.missing_workers` has the same rule for the machine of a person who submits. Functions with a connection run in the
caller's transaction; processes and threads are the host's (`local_workers.py`).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

import msgspec

from gpulayer.control.scheduler.view import AUTO
from gpulayer.control.store import jobs, workers
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.rows import JobRow
from gpulayer.protocol import StartLocalWorkers
from gpulayer.settings import most_cpu_ranks


def missing_local_workers(connection: StoreConnection, now: float, job: JobRow) -> int:
    """How many more workers on this machine would let a queued job run, one a node; 0 where they would not.

    Where somebody else's worker is alive there is an operator, who adds workers. A machine's accelerators are all offered by its
    first worker; CPU devices are places, of which any number may be offered, within `most_cpu_ranks`.
    """
    if workers.has_foreign(connection, now):
        return 0
    alive = [workers.devices_of(row) for row in workers.local_workers(connection, now)]
    accelerator = job.accelerator or AUTO
    takes_cpu = accelerator in (AUTO, "cpu")
    if not alive:
        return job.nodes if takes_cpu or job.nodes == 1 else 0
    if not takes_cpu or job.devices > most_cpu_ranks():
        return 0
    kinds = [Counter(device.accelerator for device in offered) for offered in alive]
    if any(device.accelerator != "cpu" and not device.simulated for offered in alive for device in offered):
        return 0
    # One that is large enough and lacks what the job requires counts: the next one, of the same interpreter, would lack it too.
    could_hold = sum((max(kind.values(), default=0) if accelerator == AUTO else kind[accelerator]) >= job.devices for kind in kinds)
    return max(0, job.nodes - could_hold)


def complete_request(connection: StoreConnection, request: StartLocalWorkers, interpreters: Sequence[str]) -> StartLocalWorkers:
    """The request with an interpreter, and for a job with as many devices as its nodes need.

    Args:
        connection: of any transaction.
        request: as it came.
        interpreters: those that the host has started workers with, the last one first.

    Raises:
        UnknownJob: there is no such job.
    """
    job = None if request.job_id is None else jobs.job_row(connection, request.job_id)
    if job is not None and request.cpu_devices is None and request.simulate_devices is None:
        request = msgspec.structs.replace(request, cpu_devices=job.devices)
    if request.python:
        return request
    requires = frozenset[str]() if job is None else jobs.decode_requires(job.requires)
    provided = workers.provided_by_interpreter(connection)
    suitable = [python for python in interpreters if requires <= provided.get(python, frozenset())]
    return msgspec.structs.replace(request, python=next(iter([*suitable, *interpreters, sys.executable])))
