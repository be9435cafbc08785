"""`gpulayer jobs`, `gpulayer jobs show JOB`, `gpulayer logs JOB` and `gpulayer cancel JOB…`."""

from __future__ import annotations

import json
import time

import click
from click.core import ParameterSource

from gpulayer.cli.job_record import job_record, whole_record
from gpulayer.cli.job_show import print_job
from gpulayer.cli.listing import print_listing
from gpulayer.cli.options import json_option, target_option
from gpulayer.client.listings import JOB_COLUMNS, job_row
from gpulayer.client.terminal import print_line
from gpulayer.client.waterfall import waterfall_of
from gpulayer.states import JobState
from gpulayer.targets import connect


@click.group(invoke_without_command=True)
@click.option("--state", type=click.Choice([state.value for state in JobState]), help="Only those in this state.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many, newest first.")
@json_option
@target_option
@click.pass_context
def jobs(context: click.Context, state: str | None, limit: int, as_json: bool, target: str | None) -> None:
    """List jobs, newest first."""
    if context.invoked_subcommand is not None:
        given = [name for name in ("state", "limit") if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
        if given:
            raise click.UsageError(f"--{given[0]} is for the list; `{context.invoked_subcommand}` shows one job.", context)
        return
    with connect(target) as client:
        records = [job_record(job.status) if as_json else job_row(job.status) for job in client.jobs(state=state, limit=limit)]
    print_listing(records, JOB_COLUMNS, as_json=as_json, empty="no jobs")


@jobs.command()
@click.argument("job_id", metavar="JOB")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@target_option
@click.pass_context
def show(context: click.Context, job_id: str, as_json: bool, target: str | None) -> None:
    """Show one job: where it ran, how each rank ended, what it left, and where its time went."""
    listing = context.parent.params if context.parent is not None else {}  # `jobs --json show JOB` means the same
    with connect(target or listing.get("target")) as client:
        status = client.job(job_id).status
    spans = waterfall_of(status, time.time())
    if as_json or listing.get("as_json"):
        print(json.dumps(whole_record(status, spans)))
    else:
        print_job(status, spans)


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
