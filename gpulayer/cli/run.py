"""`gpulayer run SCRIPT` and `gpulayer submit -- COMMAND`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from gpulayer.bundle.archive import Bundle
from gpulayer.bundle.collect import collect_sources, find_project
from gpulayer.cli.options import COUNT, job_options, launcher_option
from gpulayer.client.client import Client
from gpulayer.client.job import Job
from gpulayer.client.script_job import script_job
from gpulayer.client.submitting import submit_with_workers
from gpulayer.client.terminal import exit_code, follow_in_terminal, say
from gpulayer.errors import InvalidSpec, JobFailed, Unsupported
from gpulayer.spec import AnyJob, CommandJob
from gpulayer.targets import connect

_VERBATIM = {"allow_interspersed_args": False}
"""What stands behind the script or the command is theirs; an unknown option before it is refused."""


@click.command(context_settings=_VERBATIM)
@click.option("--nodes", type=COUNT, default=1, show_default=True, help="How many workers take part.")
@job_options
@launcher_option
@click.option("--detach", is_flag=True, help="Print the job's id and return; the job goes on.")
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    script: Path, args: tuple[str, ...], nodes: int, devices: int, launcher: str | None, detach: bool, target: str | None, **options: Any
) -> int:
    """Run a Python SCRIPT with its project's source, on NODES × DEVICES ranks, and show its output."""
    path = script.expanduser().resolve()
    if not path.is_file():
        raise InvalidSpec("The script is not there.", asked=str(script), found=f"no file {path}")
    project = find_project(path.parent)
    spec = script_job(path.relative_to(project).as_posix(), args, nodes=nodes, devices=devices, launcher=launcher, **options)
    with connect(target) as client:
        _refuse_to_leave(client, leaves=detach, option="--detach")
        job = _submit(client, spec, source=collect_sources(project))
        if detach:
            print(job.id)
            return 0
        try:
            follow_in_terminal(job)
        except JobFailed as error:
            say(error.two_lines())  # the rank's traceback was shown as it came
        except KeyboardInterrupt:
            say(f"{job.id} was stopped")
        return exit_code(job)


@click.command(context_settings=_VERBATIM)
@job_options
@click.option("--source", type=click.Path(file_okay=False), help="A folder whose source travels and is the command's working directory.")
@click.option("--wait", is_flag=True, help="Wait for its end, and exit as it did.")
@click.option("--json", "as_json", is_flag=True, help="Print the job as a JSON object.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def submit(
    command: tuple[str, ...], source: str | None, wait: bool, as_json: bool, target: str | None, devices: int, **options: Any
) -> int:
    """Submit a COMMAND, one process on one worker, and print the job's id: gpulayer submit -- python -c pass."""
    spec = CommandJob(argv=command, devices=devices, source=source, **options)
    with connect(target) as client:
        _refuse_to_leave(client, leaves=not wait, option="submit without --wait")
        job = _submit(client, spec)
        if wait:
            job.wait()
        _print_job(job, as_json)
        return exit_code(job) if wait else 0


def _refuse_to_leave(client: Client, *, leaves: bool, option: str) -> None:
    if leaves and client.is_embedded:
        raise Unsupported(
            "The job would end with this command: it needs a server to go on without it.",
            asked=option,
            found=client.description,
            fix="Start JupyterLab, or name a target; without that, stay until the job has ended.",
        )


def _submit(client: Client, spec: AnyJob, source: Bundle | None = None) -> Job:
    submitted = submit_with_workers(client, spec, source=source)
    for note in submitted.notes:
        say(note)
    return submitted.job


def _print_job(job: Job, as_json: bool) -> None:
    print(json.dumps({"id": job.id, "name": job.name, "state": job.status.state.value}) if as_json else job.id)
