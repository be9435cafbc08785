"""`%%gpulayer` and `%gpulayer`: from a cell to a submitted job, and the commands that look after jobs.

Options are declared in `options.py`, the export lives in `export/`, what happens after submission in `results.py`. Runs in
the kernel.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from typing import Any, TypeVar

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from gpulayer import targets
from gpulayer.client.job import Job
from gpulayer.client.listings import JOB_COLUMNS, WORKER_COLUMNS, job_row, worker_row
from gpulayer.client.script_job import script_job
from gpulayer.client.submitting import submit_with_workers
from gpulayer.client.terminal import print_line
from gpulayer.errors import Unsupported
from gpulayer.spec import AnyJob
from gpulayer_jupyter.export.provider import export_magic_cell, recorder_of, stop_recording
from gpulayer_jupyter.options import OptionParser, cell_parser, line_parser, parse_cell_options, parse_command
from gpulayer_jupyter.preview import describe_export, left_behind
from gpulayer_jupyter.refusals import shown
from gpulayer_jupyter.results import follow_to_end, load_weights, remember_program, watch_to_end

F = TypeVar("F", bound=Callable[..., Any])


def load_magics(ipython: Any) -> None:
    """Register the magics and start recording what runs; loading again changes nothing."""
    recorder_of(ipython)
    if not isinstance(ipython.magics_manager.registry.get("GPUlayerMagics"), GPUlayerMagics):
        ipython.register_magics(GPUlayerMagics)


def unload_magics(ipython: Any) -> None:
    """Take the magics away and stop recording; unloading again changes nothing."""
    stop_recording(ipython)
    manager = ipython.magics_manager
    manager.registry.pop("GPUlayerMagics", None)
    for kind, names in GPUlayerMagics.magics.items():
        for name in names:
            manager.magics[kind].pop(name, None)


def _documented(parser: OptionParser) -> Callable[[F], F]:
    """Show the options in `%%gpulayer?`."""

    def document(function: F) -> F:
        function.__doc__ = f"{function.__doc__}\n\n{parser.format_help()}"
        return function

    return document


@magics_class
class GPUlayerMagics(Magics):
    """The magics of one shell."""

    shell: Any

    @cell_magic("gpulayer")  # type: ignore[arg-type]  # its annotations know no methods
    @_documented(cell_parser())
    @shown
    def run_cell(self, line: str, cell: str) -> Job | None:
        """Run the cell's body as a job."""
        options = parse_cell_options(line)
        job_of(options, script="main.py")  # a wrong option is told before anything is exported
        export = export_magic_cell(self.shell, cell)
        run = recorder_of(self.shell).current
        # Not the last cell that travels: of this one there may be nothing but comments.
        name = f"cell-{run.cell if run is not None else self.shell.execution_count}"
        spec = job_of(options, script=export.script, name=name, requires=("torch",) if "torch" in export.packages else ())
        client = targets.connect(options.target)
        keep_open = False
        try:
            if options.dry_run:
                self._say(describe_export(export, spec, client=client))
                return None
            if options.detach and client.is_embedded:
                raise Unsupported(
                    "--detach needs a server: an embedded control plane ends with this process, jobs included.",
                    found=client.description,
                    fix="Start JupyterLab with the extension, or name one with --target; without --detach the cell follows the job.",
                )
            submitted = submit_with_workers(client, spec, source=export.bundle)
            job = submitted.job
            if options.detach:
                keep_open = True  # the handle goes on using it
                remember_program(job, export.program)
                self._say(f"job {job.id} {job.name} submitted; %gpulayer attach {job.id} follows it")
                return job
            follow_to_end(job, self.shell, program=export.program, notes=[*submitted.notes, *left_behind(export, spec)])
            for said in load_weights(job, self.shell.user_ns, on_loaded=recorder_of(self.shell).remember_weights):
                self._say(said)
            return None
        finally:
            if not keep_open:
                client.close()

    @line_magic("gpulayer")  # type: ignore[arg-type]
    @_documented(line_parser())
    @shown
    def run_command(self, line: str) -> None:
        """Carry out one command."""
        options = parse_command(line)
        with targets.connect(options.target) as client:
            match options.command:
                case "jobs":
                    self._say(_table(JOB_COLUMNS, [job_row(job.status) for job in client.jobs()], empty="no jobs"))
                case "workers":
                    self._say(_table(WORKER_COLUMNS, [worker_row(worker) for worker in client.workers()], empty="no workers"))
                case "logs":
                    for entry in client.job(options.job).logs(options.rank):
                        print_line(entry, sys.stdout)
                case "cancel":
                    job = client.job(options.job).cancel(force=options.force)
                    self._say(f"job {job.id} {job.name}: {'stopping' if not job.status.state.is_terminal else job.status.state}")
                case "attach":
                    watch_to_end(client.job(options.job), self.shell)

    # With anything above it in the cell, IPython takes `%%gpulayer …` for a line magic of the name `%gpulayer`.
    @line_magic("%gpulayer")  # type: ignore[arg-type]
    def refuse_below_first_line(self, line: str) -> None:  # noqa: ARG002 - the options of a cell that is not run
        """Say where `%%gpulayer` belongs; returning instead would let IPython run the cell's body in this kernel."""
        raise UsageError("%%gpulayer must be the first line of the cell.\nMove what stands above it below; nothing of its body has run.")

    @staticmethod
    def _say(text: str) -> None:
        if text:
            print(text)  # noqa: T201 - the cell's own output


def job_of(options: Namespace, *, script: str, name: str | None = None, requires: tuple[str, ...] = ()) -> AnyJob:
    """The job that these options ask for; its ranks start warm where that is possible, unless a launcher is named (ADR-0035).

    Raises:
        InvalidSpec: naming the option, what was asked and what is possible.
    """
    return script_job(
        script,
        nodes=options.nodes,
        devices=options.devices,
        launcher=options.launcher or ("auto" if options.nodes * options.devices > 1 else None),
        requires=requires,
        name=options.name or name,
        accelerator=options.accelerator,
        env=dict(options.env),
        inputs=dict(options.input),
        timeout_seconds=options.timeout,
        grace_seconds=options.grace,
        retries=options.retries,
    )


def _table(columns: tuple[str, ...], rows: list[dict[str, str]], *, empty: str) -> str:
    if not rows:
        return empty
    lines = [columns, *([row[column] for column in columns] for row in rows)]
    widths = [max(len(line[position]) for line in lines) for position in range(len(columns))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines)
