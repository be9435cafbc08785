"""`launch()` at the top of a script, and the steps from a place that holds source to a submitted job.

Outside a job the script is packaged and submitted, and this process follows it and leaves with its exit code; inside, the
call returns at once. Needs no torch. Runs in the script's first process and, where it does nothing, in every rank.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, NoReturn

from gpulayer.client.script_job import script_job
from gpulayer.errors import JobFailed, Unsupported
from gpulayer.pytorch.rank_context import in_notebook, read_rank_context
from gpulayer.settings import GRACE_SECONDS
from gpulayer.spec import AnyJob

if TYPE_CHECKING:
    from gpulayer.bundle.source_provider import Source
    from gpulayer.client.client import Client
    from gpulayer.client.job import Job

_CAPABILITIES = {"cuda": ("torch.cuda",), "rocm": ("torch.rocm",), "mps": ("torch.mps",)}
_INTERRUPTED = 130  # what a shell reports for SIGINT


def launch(
    nodes: int = 1,
    devices: int = 1,
    accelerator: str = "auto",
    target: str | None = None,
    *,
    name: str | None = None,
    env: dict[str, str] | None = None,
    inputs: dict[str, str] | None = None,
    timeout_seconds: float | None = None,
    grace_seconds: float = GRACE_SECONDS,
    retries: int = 0,
    launcher: str | None = None,
    requirements: str | None = None,
) -> None:
    """Run this script as a job of `nodes` × `devices` ranks; inside the job (or a torchrun) return at once.

    Outside it never returns: it shows the job's output, fetches its outputs into `gpulayer_runs/`, and leaves with the
    job's exit code. Code above the call runs here and on every rank.

    Args:
        nodes: how many workers take part.
        devices: per node.
        accelerator: `auto`, or the kind of device.
        target: as in `gpulayer.connect`.
        name: of the job; by default the script's.
        env: variables set for every rank.
        inputs: name → local path of a file or folder that travels with the job.
        timeout_seconds: counted from the first rank's start.
        grace_seconds: what a rank may take to end when the job is cancelled or out of time (ADR-0024).
        retries: how often a failed attempt is tried again.
        launcher: who starts the ranks on a node; by default torchrun, where there are several.
        requirements: path of a requirements file that the worker builds an environment of.

    Raises:
        SystemExit: with the job's exit code.
        Unsupported: in a notebook, where `%%gpulayer` is the way.
    """
    if read_rank_context().is_rank:
        return
    if in_notebook():
        raise Unsupported(
            "launch() starts a script again from its file; a notebook cell has no file.",
            fix=f"Put this line at the top of the cell instead: %%gpulayer --nodes {nodes} --devices {devices}",
        )
    from gpulayer.bundle.source_provider import current_provider
    from gpulayer.client.terminal import exit_code, follow_in_terminal
    from gpulayer.targets import connect

    provider = current_provider(in_terminal=follow_in_terminal)
    source = provider.collect()
    spec = job_from_source(
        source,
        nodes=nodes,
        devices=devices,
        accelerator=accelerator,
        name=name,
        env=env,
        inputs=inputs,
        timeout_seconds=timeout_seconds,
        grace_seconds=grace_seconds,
        retries=retries,
        launcher=launcher,
        requirements=requirements,
    )
    with connect(target) as client:
        job = submit_source(client, spec, source)
        try:
            provider.follow(job)
        except JobFailed as failed:
            _leave(failed.two_lines(), exit_code(job))
        except KeyboardInterrupt:
            _leave("Interrupted; the job was stopped.", _INTERRUPTED)
        sys.exit(0)


def is_launcher_process() -> bool:
    """Whether this process stands outside any job, so that `launch()` or a launched `fit` would submit from here."""
    return not read_rank_context().is_rank


def job_from_source(
    source: Source,
    *,
    nodes: int,
    devices: int,
    accelerator: str,
    name: str | None = None,
    env: dict[str, str] | None = None,
    inputs: dict[str, str] | None = None,
    timeout_seconds: float | None = None,
    grace_seconds: float = GRACE_SECONDS,
    retries: int = 0,
    launcher: str | None = None,
    requirements: str | None = None,
) -> AnyJob:
    """The job that runs this source with torch on `nodes` × `devices` ranks.

    Raises:
        InvalidSpec: naming the argument, what was asked and what is possible.
    """
    return script_job(
        source.script,
        source.args,
        nodes=nodes,
        devices=devices,
        launcher=launcher,
        name=name or _name_from(source.title),
        accelerator=accelerator,
        env=env or {},
        inputs=inputs or {},
        requires=("torch", *_CAPABILITIES.get(accelerator, ())),
        timeout_seconds=timeout_seconds,
        grace_seconds=grace_seconds,
        retries=retries,
        cells=source.cells,
        requirements=requirements,
    )


def submit_source(client: Client, spec: AnyJob, source: Source) -> Job:
    """Submit the job with its source, and say what was started for it."""
    from gpulayer.client.submitting import submit_with_workers
    from gpulayer.client.terminal import say

    submitted = submit_with_workers(client, spec, source=source.bundle)
    for note in submitted.notes:
        say(note)
    return submitted.job


def _name_from(title: str) -> str | None:
    """The title as a job's name, None where nothing of it can stand in one."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", title).strip("-._")[:80] or None


def _leave(message: str, exit_code: int) -> NoReturn:
    sys.stderr.write(message + "\n")
    sys.exit(exit_code)
