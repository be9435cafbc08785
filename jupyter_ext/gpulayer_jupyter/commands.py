"""What the commands of `%gpulayer` do: list, read, cancel and attach to jobs, write a folder, keep settings. Runs in the kernel."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from gpulayer import targets
from gpulayer.client.client import Client
from gpulayer.client.finding import find_job
from gpulayer.client.listings import JOB_COLUMNS, WORKER_COLUMNS, job_row, worker_row
from gpulayer.client.terminal import print_line
from gpulayer.errors import NotFound
from gpulayer_jupyter import autoload
from gpulayer_jupyter.completion import remember_job
from gpulayer_jupyter.defaults import KernelDefaults, defaults_of, set_defaults
from gpulayer_jupyter.export.accepting import accept, forget
from gpulayer_jupyter.export.choices import remembered_by
from gpulayer_jupyter.exported_folder import write_last_export
from gpulayer_jupyter.fetching import bind_fetched, names_wanted_of
from gpulayer_jupyter.results import watch_to_end


def carry_out(options: Namespace, shell: Any, *, check_defaults: Callable[[list[str]], None]) -> None:
    """Do what was asked; `check_defaults` refuses words that no cell could begin with.

    Raises:
        GPUlayerError: as the call that the command makes.
        UsageError: a default that there is not.
    """
    match options.command:
        case "config":
            _configure(options, shell, check_defaults)
        case "export":
            _say(write_last_export(shell, options.words[0]))
        case "rerun":
            _rerun(options, shell)
        case "autoload":
            _say((autoload.turn_off if options.off else autoload.turn_on)(shell))
        case _:
            with targets.connect(options.target or defaults_of(shell).options.get("target")) as client:
                _ask(options, shell, client)


def _ask(options: Namespace, shell: Any, client: Client) -> None:
    match options.command:
        case "jobs":
            listed = client.jobs()
            for job in listed:
                remember_job(job)
            _say(_table(JOB_COLUMNS, [job_row(job.status) for job in listed], empty="no jobs"))
        case "workers":
            _say(_table(WORKER_COLUMNS, [worker_row(worker) for worker in client.workers()], empty="no workers"))
        case "logs":
            for entry in find_job(client, options.job).logs(options.rank):
                print_line(entry, sys.stdout)
        case "cancel":
            job = find_job(client, options.job).cancel(force=options.force)
            _say(f"job {job.id} {job.name}: {'stopping' if not job.status.state.is_terminal else job.status.state}")
        case "attach":
            job = find_job(client, options.job)
            watch_to_end(job, shell)
            _say("\n".join(bind_fetched(job, names_wanted_of(job), shell)))


def _configure(options: Namespace, shell: Any, check: Callable[[list[str]], None]) -> None:
    kept = KernelDefaults() if options.reset else defaults_of(shell)
    changed = kept.changed_by(options.words)
    check(changed.words())
    set_defaults(shell, changed)
    lines = changed.lines()
    _say("\n".join(lines) if lines else "no defaults: %gpulayer config nodes=2 devices=4 keeps some for this kernel's cells")


def _rerun(options: Namespace, shell: Any) -> None:
    remembered = remembered_by(shell)
    if options.reset:
        forget(shell)
    accepted = accept(options.selectors, shell)
    if options.selectors and not accepted:
        raise NotFound(
            "No statement that the last refusal or preview named answers to this.",
            asked=" ".join(options.words),
            found=", ".join(f"{piece.cell}:{piece.line}" for piece, _ in remembered.refused) or "none so far",
            fix="Name one as CELL:LINE, or all.",
        )
    lines = [f"  {text.splitlines()[0]}" for text in sorted(remembered.accepted)]
    _say("\n".join(["accepted on every rank that needs them:", *lines]) if lines else "no side effects accepted")


def _say(text: str) -> None:
    if text:
        print(text)  # noqa: T201 - the cell's own output


def _table(columns: tuple[str, ...], rows: list[dict[str, str]], *, empty: str) -> str:
    if not rows:
        return empty
    lines = [columns, *([row[column] for column in columns] for row in rows)]
    widths = [max(len(line[position]) for line in lines) for position in range(len(columns))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines)
