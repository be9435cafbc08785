"""Submit: what is refused at the door, the kind of accelerator, the job's row and its first placement, in one transaction."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import PurePath

import msgspec

from gpulayer.control.client_leases import LONGEST_LEASE_SECONDS, SHORTEST_LEASE_SECONDS
from gpulayer.control.placing import commit_placement, job_view
from gpulayer.control.presence import presence_of
from gpulayer.control.scheduler.feasible import kinds_for
from gpulayer.control.scheduler.fleet import Fleet
from gpulayer.control.scheduler.view import AUTO, JobView
from gpulayer.control.statuses import job_statuses
from gpulayer.control.store import client_leases, jobs, workers
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.workers import LargestGroup
from gpulayer.errors import Conflict, InvalidSpec, Unplaceable
from gpulayer.protocol import Digest, JobStatus, SubmitJob
from gpulayer.spec import AnyJob, CommandJob

_encoder = msgspec.json.Encoder(order="deterministic")  # equal requests are equal bytes


def submit_job(connection: StoreConnection, now: float, *, request: SubmitJob, owner: str) -> JobStatus:
    """Store a job, place it if it fits, and return its record; the same request under the same key answers with the first job.

    Those that waited before it are not looked at: nothing was freed.

    Raises:
        Conflict: another request came under this key.
        Unplaceable: nothing that this home has ever seen could hold it.
        InvalidSpec: a client lease that is too short or too long.
    """
    spec, inputs = _encoder.encode(request.spec), _encoder.encode(request.inputs)
    request_digest = _digest(spec, request.source, inputs, request.requirements)
    _check_lease(request)
    earlier = jobs.job_by_key(connection, owner, request.idempotency_key)
    if earlier is not None:
        if earlier.request_digest != request_digest:
            raise Conflict(
                "Another request came under this idempotency key.",
                asked=f"key {request.idempotency_key}",
                found=f"job {earlier.id}",
                fix="Draw a new key for each job.",
            )
        return job_statuses(connection, now, [earlier])[0]
    fleet = presence_of(connection, now).fleet
    demand = job_view(request.spec)
    kind = _fix_accelerator(connection, fleet, demand)
    placement = fleet.place_job(demand if kind is None else replace(demand, accelerator=kind)) if fleet.has_room else None
    job = jobs.insert_job(
        connection,
        now,
        name=request.spec.name or _default_name(request.spec),
        owner=owner,
        idempotency_key=request.idempotency_key,
        request_digest=request_digest,
        spec=spec,
        source=request.source,
        inputs=inputs,
        nodes=demand.nodes,
        devices=demand.devices,
        accelerator=kind if placement is None else placement.accelerator,
        requires=_encoder.encode(sorted(demand.requires)),
        requirements=request.requirements,
    )
    if request.lease_seconds is not None:
        client_leases.insert_lease(connection, job.id, request.lease_seconds)
    tasks = [] if placement is None else commit_placement(connection, now, replace(placement, job_id=job.id), attempt=job.attempt)
    return job_statuses(connection, now, [job], {job.id: tasks})[0]


def _check_lease(request: SubmitJob) -> None:
    seconds = request.lease_seconds
    if seconds is not None and not SHORTEST_LEASE_SECONDS <= seconds <= LONGEST_LEASE_SECONDS:
        raise InvalidSpec(
            "A client's lease is some seconds to an hour long.",
            asked=f"lease_seconds={seconds:g}",
            fix=f"Ask for {SHORTEST_LEASE_SECONDS:g} to {LONGEST_LEASE_SECONDS:g} seconds.",
        )


def _fix_accelerator(connection: StoreConnection, fleet: Fleet, job: JobView) -> str | None:
    """The kind for this job; None leaves `auto` to the first placement.

    The best kind with which the living workers could hold it, busy or not. Only where they could with none, what this home
    has ever seen at once decides: real devices first, as the job then waits for them.
    """
    kind = fleet.chosen_kind(job)
    if kind is not None:
        return kind
    seen = workers.read_largest_groups(connection)
    if not seen:
        return None if job.accelerator == AUTO else job.accelerator
    kind = _kind_once_seen(seen, job)
    if kind is None:
        raise Unplaceable(
            "No workers that this home has ever seen at once could hold this job.",
            asked=job.demand(),
            found="; ".join(str(group) for group in seen),
            fix=_how_to_add_workers(job),
        )
    _refuse_never_provided(connection, fleet, job)
    return kind


def _how_to_add_workers(job: JobView) -> str:
    count = "" if job.nodes == 1 else f" on {job.nodes} workers"
    if job.accelerator not in (AUTO, "cpu"):
        return f"Ask for less, or start `gpulayer worker start` where there are {job.devices} × {job.accelerator}{count}."
    return (
        f"Ask for less, or add workers first: `gpulayer worker start --cpu-devices {job.devices}`{count},"
        f" or gpulayer.connect().ensure_local_workers({job.nodes}, cpu_devices={job.devices}) on the control plane's machine."
    )


def _kind_once_seen(seen: list[LargestGroup], job: JobView) -> str | None:
    large_enough = [group for group in seen if group.devices >= job.devices and group.workers >= job.nodes]
    for simulated in (False, True):
        kinds = {group.accelerator for group in large_enough if group.simulated is simulated}
        found = next((kind for kind in kinds_for(job) if kind in kinds), None)
        if found is not None:
            return found
    return None


def _refuse_never_provided(connection: StoreConnection, fleet: Fleet, job: JobView) -> None:
    if fleet.provides(job.requires):
        return
    provided = workers.ever_provided(connection)
    if any(job.requires <= names for names in provided):
        return
    missing = sorted(job.requires.difference(*provided))
    raise Unplaceable(
        "No worker that this home has ever seen provides what this job requires.",
        asked=", ".join(sorted(job.requires)),
        found=f"no worker with {' or '.join(missing)}" if missing else "workers with some of that, none with all",
        fix="Install it where a worker runs and start that worker again, or start one in an environment that has it:"
        " `gpulayer worker start`.",
    )


def _default_name(spec: AnyJob) -> str:
    if isinstance(spec, CommandJob):
        return PurePath(spec.argv[0]).name or "command"
    return PurePath(spec.script).stem


def _digest(spec: bytes, source: Digest | None, inputs: bytes, requirements: Digest | None) -> str:
    """Tells requests under one key apart: JSON holds no line ends, so the parts can't run into each other."""
    parts = [spec, (source or "").encode(), inputs]
    if requirements is not None:
        parts.append(requirements.encode())
    return hashlib.sha256(b"\n".join(parts)).hexdigest()
