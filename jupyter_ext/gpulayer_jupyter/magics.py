"""`%%gpulayer` and `%gpulayer`: from a cell to a submitted job, and the commands that look after jobs.

Options are declared in `options.py`, the export lives in `export/`, what happens after submission in `results.py`, what the
commands do in `commands.py`. Runs in the kernel.
"""

from __future__ import annotations

import weakref
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from gpulayer import targets
from gpulayer.client.client import Client
from gpulayer.client.following import ends_with_interrupt
from gpulayer.client.job import Job
from gpulayer.client.script_job import script_job
from gpulayer.client.submitting import submit_with_workers
from gpulayer.client.values import value_limit
from gpulayer.errors import Unsupported
from gpulayer.spec import AnyJob
from gpulayer_jupyter.commands import carry_out
from gpulayer_jupyter.completion import complete_magics, complete_no_more, remember_job
from gpulayer_jupyter.defaults import defaults_of
from gpulayer_jupyter.export.accepting import also_ran, check_accepted, remember_pending
from gpulayer_jupyter.export.bundle_maker import Export
from gpulayer_jupyter.export.pieces import Piece
from gpulayer_jupyter.export.provider import export_magic_cell, recorder_of, stop_recording
from gpulayer_jupyter.exported_folder import remember_export
from gpulayer_jupyter.fetching import bind_fetched, check_wanted, wanting_pieces
from gpulayer_jupyter.kept_weights import load_weights
from gpulayer_jupyter.kernel_lease import KERNEL_LEASE_SECONDS, keep_bound
from gpulayer_jupyter.options import OptionParser, cell_parser, choices_of, line_parser, parse_cell_options, parse_command
from gpulayer_jupyter.output.choose import show_once
from gpulayer_jupyter.preview import describe_export, left_behind
from gpulayer_jupyter.refusals import shown
from gpulayer_jupyter.results import follow_to_end, print_lines, remember_program
from gpulayer_jupyter.sending import sent_pieces
from gpulayer_jupyter.widgets.front_end import forget_front_end, probe_front_end

F = TypeVar("F", bound=Callable[..., Any])


def load_magics(ipython: Any) -> None:
    """Register the magics and start recording what runs; loading again changes nothing."""
    recorder_of(ipython)
    if not isinstance(ipython.magics_manager.registry.get("GPUlayerMagics"), GPUlayerMagics):
        ipython.register_magics(GPUlayerMagics)
    complete_magics(ipython)
    probe_front_end(ipython)


def unload_magics(ipython: Any) -> None:
    """Take the magics away and stop recording; unloading again changes nothing."""
    stop_recording(ipython)
    complete_no_more(ipython)
    forget_front_end(ipython)
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
        options = parse_cell_options(line, defaults_of(self.shell).words())
        job_of(options, script="main.py")  # a wrong option is told before anything is exported
        given = [path for _, path in options.input]
        export = export_magic_cell(self.shell, cell, choices=choices_of(options), added=self._given(options), given=given)
        check_wanted(options.fetch, export)
        run = recorder_of(self.shell).current
        # Not the last cell that travels: of this one there may be nothing but comments.
        name = f"cell-{run.cell if run is not None else self.shell.execution_count}"
        has_tensors = any(path.endswith(".safetensors") for path in export.bundle.files)
        requires = ("torch",) if "torch" in export.packages or has_tensors else ()
        spec = job_of(options, script=export.script, name=name, requires=requires, cells=export.program.cells)
        remember_export(self.shell, export, spec)
        if options.dry_run:
            remember_pending(export, self.shell)
        else:
            check_accepted(export, self.shell)
        client = targets.connect(options.target)
        job = None
        try:
            if options.dry_run:
                print(describe_export(export, spec, client=client, namespace=self.shell.user_ns))  # noqa: T201 - the cell's own output
                return None
            _check_detached(options, client)
            submitted = submit_with_workers(
                client, spec, source=export.bundle, lease_seconds=KERNEL_LEASE_SECONDS if options.bind == "kernel" else None
            )
            job = submitted.job
            # The handle is a name's or Out's: it goes on using its client for as long as somebody holds it.
            weakref.finalize(job, client.close)
        finally:
            if job is None:
                client.close()
        return self._look_after(job, options, export, submitted.notes, said=[*also_ran(export), *left_behind(export, spec)])

    def _given(self, options: Namespace) -> list[Piece]:
        """What the options put before the cell: the values that it gets, and what it sends back."""
        run = recorder_of(self.shell).current
        cell = run.cell if run is not None else self.shell.execution_count
        most_bytes = value_limit()
        sent = sent_pieces(options.send, self.shell.user_ns, cell=cell, folder=Path.cwd(), most_bytes=most_bytes)
        return [*sent, *wanting_pieces(options.fetch, cell=cell, most_bytes=most_bytes)]

    def _look_after(self, job: Job, options: Namespace, export: Export, notes: list[str], *, said: list[str]) -> Job:
        """What follows on a job that is stored: from here on it runs, whatever becomes of the cell, unless that is interrupted.

        What is `said` is the cell's own text: where the lab extension draws the job, nothing of the job's text is shown.
        """
        with ends_with_interrupt(job):
            print_lines(said)
            remember_program(job, export.program)
            remember_job(job)
            if options.bound_name:
                self.shell.user_ns[options.bound_name] = job
            if options.bind == "kernel":
                keep_bound(job)
            if options.detach:
                values = " and brings its values back" if options.fetch else ""
                show_once(self.shell, job, [*notes, f"%gpulayer attach {job.id} follows it{values}"])
                return job
        follow_to_end(job, self.shell, program=export.program, notes=notes)
        print_lines(load_weights(job, self.shell.user_ns, on_loaded=recorder_of(self.shell).remember_weights))
        print_lines(bind_fetched(job, options.fetch, self.shell))
        return job

    @line_magic("gpulayer")  # type: ignore[arg-type]
    @_documented(line_parser())
    @shown
    def run_command(self, line: str) -> None:
        """Carry out one command."""
        carry_out(parse_command(line), self.shell, check_defaults=_check_defaults)

    # With anything above it in the cell, IPython takes `%%gpulayer …` for a line magic of the name `%gpulayer`.
    @line_magic("%gpulayer")  # type: ignore[arg-type]
    def refuse_below_first_line(self, line: str) -> None:  # noqa: ARG002 - the options of a cell that is not run
        """Say where `%%gpulayer` belongs; returning instead would let IPython run the cell's body in this kernel."""
        raise UsageError("%%gpulayer must be the first line of the cell.\nMove what stands above it below; nothing of its body has run.")


def _check_defaults(words: list[str]) -> None:
    """Refuse defaults that no cell could run with."""
    job_of(parse_cell_options("", words), script="main.py")


def _check_detached(options: Namespace, client: Client) -> None:
    if options.detach and client.is_embedded:
        raise Unsupported(
            "--detach needs a server: an embedded control plane ends with this process, jobs included.",
            found=client.description,
            fix="Start JupyterLab with the extension, or name one with --target; without --detach the cell follows the job.",
        )


def job_of(
    options: Namespace, *, script: str, name: str | None = None, requires: tuple[str, ...] = (), cells: tuple[int, ...] = ()
) -> AnyJob:
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
        cells=cells,
        name=options.name or name,
        accelerator=options.accelerator,
        env=dict(options.env),
        inputs=dict(options.input),
        timeout_seconds=options.timeout,
        grace_seconds=options.grace,
        retries=options.retries,
        requirements=options.requirements,
    )
