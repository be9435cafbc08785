"""`gpulayer jobs`, `gpulayer logs JOB` and `gpulayer cancel JOB…`."""

from __future__ import annotations

import json
from typing import Any

import click
import msgspec

from gpulayer.cli.listing import print_listing
from gpulayer.cli.options import json_option, target_option
from gpulayer.client.listings import JOB_COLUMNS, failure_note, job_row
from gpulayer.client.terminal import print_line
from gpulayer.protocol import JobStatus
from gpulayer.spec import node_count
from gpulayer.states import JobState
from gpulayer.targets import connect


@click.command()
@click.option("--state", type=click.Choice([state.value for state in JobState]), help="Only those in this state.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many, newest first.")
@json_option
@target_option
def jobs(state: str | None, limit: int, as_json: bool, target: str | None) -> None:
    """List jobs, newest first."""
    with connect(target) as client:
        records = [job_record(job.status) if as_json else job_row(job.status) for job in client.jobs(state=state, limit=limit)]
    print_listing(records, JOB_COLUMNS, as_json=as_json, empty="no jobs")


@click.command()
@click.argument("job_id", metavar="JOB")
@click.option("--rank", type=click.IntRange(min=0), help="Only this rank's.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job has ended.")
@json_option
@target_option
def logs(job_id: str, rank: int | None, follow: bool, as_json: bool, target: str | None) -> None:
    """Print a job's output, each line marked with its rank."""
    with connect(target) as client:
        job = client.job(job_id)
        for line in job.follow_logs(rank) if follow else job.logs(rank):
            if as_json:
                print(
                    json.dumps({"rank": line.rank, "stream": line.stream, "number": line.number, "time": line.time, "text": line.text}),
                    flush=follow,
                )
            else:
                print_line(line)


@click.command()
@click.argument("job_ids", metavar="JOB...", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Without grace: killed at once.")
@json_option
@target_option
def cancel(job_ids: tuple[str, ...], force: bool, as_json: bool, target: str | None) -> None:
    """Stop jobs: SIGINT, and after their grace SIGTERM and SIGKILL. Does not wait for their end."""
    with connect(target) as client:
        records = [job_record(client.job(job_id).cancel(force=force).status) for job_id in job_ids]
    print_listing(records, ("id", "name", "state"), as_json=as_json, empty="")


def job_record(status: JobStatus) -> dict[str, Any]:
    """A job as listings show it. Its variables are left out: they may be secrets."""
    return {
        "id": status.job_id,
        "name": status.name,
        "owner": status.owner,
        "state": status.state.value,
        "nodes": node_count(status.spec),
        "devices": status.spec.devices,
        "accelerator": status.accelerator,
        "attempt": status.attempt,
        "created_at": status.created_at,
        "started_at": status.started_at,
        "ended_at": status.ended_at,
        "waiting_for": status.waiting_for,
        "failure": failure_note(status),
        "tasks": [
            {"node": task.node, "state": task.state.value, "worker": task.worker, "host": task.host, "devices": list(task.devices)}
            for task in status.tasks
        ],
        "failure_details": msgspec.to_builtins(status.failure),
    }
