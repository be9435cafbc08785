"""Submit: what is refused at the door, the kind of accelerator, the job's row and its first placement, in one transaction."""

from __future__ import annotations

import hashlib
from pathlib import PurePath

import msgspec
from sqlalchemy import Connection

from gpulayer.control.placing import place_job
from gpulayer.control.scheduler.feasible import kinds_for
from gpulayer.control.scheduler.view import AUTO, JobView
from gpulayer.control.store import jobs, workers
from gpulayer.errors import Conflict, Unplaceable
from gpulayer.protocol import Digest, InputFile, JobId, SubmitJob
from gpulayer.spec import AnyJob, CommandJob, node_count


def submit_job(
    connection: Connection,
    now: float,
    *,
    spec: AnyJob,
    owner: str,
    idempotency_key: str,
    source: Digest | None,
    inputs: dict[str, InputFile],
) -> JobId:
    """Store a job and place it if it fits; the same request under the same key answers with the job that was made first.

    Raises:
        Conflict: another request came under this key.
        Unplaceable: nothing that this home has ever seen could hold it.
    """
    request_digest = _digest(SubmitJob(spec=spec, idempotency_key=idempotency_key, source=source, inputs=inputs))
    earlier = jobs.job_by_key(connection, owner, idempotency_key)
    if earlier is not None:
        if earlier.request_digest != request_digest:
            raise Conflict(
                "Another request came under this idempotency key.",
                asked=f"key {idempotency_key}",
                found=f"job {earlier.id}",
                fix="Draw a new key for each job.",
            )
        return JobId(earlier.id)
    job_id = jobs.insert_job(
        connection,
        now,
        spec=spec,
        name=spec.name or _default_name(spec),
        owner=owner,
        idempotency_key=idempotency_key,
        request_digest=request_digest,
        source=source,
        inputs=inputs,
        accelerator=_fix_accelerator(spec, workers.read_largest_groups(connection)),
    )
    place_job(connection, now, job_id)
    return job_id


def _fix_accelerator(spec: AnyJob, seen: list[tuple[str, int, int]]) -> str | None:
    """The kind for this job, from what this home has ever seen at once; None leaves `auto` to the first placement."""
    if not seen:
        return None if spec.accelerator == AUTO else spec.accelerator
    job = JobView(id="", nodes=node_count(spec), devices=spec.devices, accelerator=spec.accelerator)
    for kind in kinds_for(job):
        if any(group_kind == kind and devices >= job.devices and count >= job.nodes for group_kind, devices, count in seen):
            return kind
    raise Unplaceable(
        "No workers that this home has ever seen at once could hold this job.",
        asked=job.demand(),
        found="; ".join(
            f"{count} {'worker' if count == 1 else 'workers'} with {devices} × {group_kind}" for group_kind, devices, count in seen
        ),
        fix="Ask for less, or add workers first: `gpulayer worker start`"
        + (f" --cpu-devices {job.devices}." if spec.accelerator in (AUTO, "cpu") else "."),
    )


def _default_name(spec: AnyJob) -> str:
    if isinstance(spec, CommandJob):
        return PurePath(spec.argv[0]).name or "command"
    return PurePath(spec.script).stem


def _digest(request: SubmitJob) -> str:
    return hashlib.sha256(msgspec.json.encode(request, order="deterministic")).hexdigest()
