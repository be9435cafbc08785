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
from gpulayer.client.finding import find_job
from gpulayer.client.listings import JOB_COLUMNS, job_row
from gpulayer.client.terminal import print_line
from gpulayer.client.waterfall import waterfall_of
from gpulayer.states import JobState
from gpulayer.targets import connect


class _JobsGroup(click.Group):
    """`gpulayer jobs` lists by itself; what else stands behind it is told where it belongs."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if self.get_command(ctx, word) is None and not word.startswith("-"):
            hint = "" if word in ("list", "ls") else f", `gpulayer jobs show {word}` shows one job"
            raise click.UsageError(f"There is no `gpulayer jobs {word}`: `gpulayer jobs` lists jobs{hint}.", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_JobsGroup, invoke_without_command=True)
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
    """Show one job, by its id or its name: where it ran, how each rank ended, what it left, and where its time went."""
    listing = context.parent.params if context.parent is not None else {}  # `jobs --json show JOB` means the same
    with connect(target or listing.get("target")) as client:
        status = find_job(client, job_id).status
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
    """Print a job's output, each line marked with its rank. JOB is its id, or its name: the newest of that name."""
    with connect(target) as client:
        job = find_job(client, job_id)
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
    """Stop jobs: SIGINT, and after their grace SIGTERM and SIGKILL. Does not wait for their end.

    JOB is an id, or a name: the newest job of that name.
    """
    with connect(target) as client:
        records = [job_record(find_job(client, job_id).cancel(force=force).status) for job_id in job_ids]
    print_listing(records, ("id", "name", "state"), as_json=as_json, empty="")
