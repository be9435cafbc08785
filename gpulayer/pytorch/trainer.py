"""`Trainer`: decides where a fit runs, and runs it there.

Inside a job, and for one device without a target, the loop runs in this process. Otherwise this process's source (script
or cell) is submitted as a job, in which the same `fit` call runs the loop, and the final weights come back into the model.

**Several fits.** `fit` calls are counted from 0 in every process. A script's job is told which call it is for. The launched
fits before that one are not trained again: their weights travel as an input, and the calls load them (random states do
not travel; a fit that ran in the launching process runs in the job too). Then the job runs its own fit and the code after
it, and ends at the next `fit`. A notebook's job runs what the launching statement needs and the statement, and the last fit
of all that counts; so one statement launches one fit. Every fit outside a job leaves its weights with the notebook's
history, which exports them in place of the fit; where the statement around it is needed, the fit is *replayed*.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpulayer.errors import InvalidSpec, Unsupported
from gpulayer.pytorch.launch import job_from_source, submit_source
from gpulayer.pytorch.loop import EpochFigures, FitLoop
from gpulayer.pytorch.module import Module
from gpulayer.pytorch.precision import check_precision
from gpulayer.pytorch.rank_context import (
    REQUESTED_FIT,
    RankContext,
    ReplayedFit,
    executing_statement,
    in_notebook,
    read_rank_context,
    replayed_fit,
)
from gpulayer.pytorch.runtime import Runtime
from gpulayer.pytorch.weights import has_fit, keep_fit, load_files, load_fit, save_fit, save_weights, weights_among
from gpulayer.spec import ACCELERATORS

if TYPE_CHECKING:
    from gpulayer.bundle.executing import Position
    from gpulayer.bundle.source_provider import SourceProvider

_fits = itertools.count()
_EARLIER_FITS = "gpulayer-fits"
"""The input that holds the weights of a script's launched fits before the one that the job is for."""
_launching_statements: set[tuple[int, Position]] = set()
"""Cells and places in them, of this kernel, that have launched a fit."""


class Trainer:
    """Trains a `Module` on one device or many, here or in a job; only these arguments change.

    Args:
        max_epochs: how often the training data are gone through.
        accelerator: `auto`, or the kind of device.
        devices: per node. None: 1, and inside a job what the job has.
        num_nodes: None: 1, and inside a job what the job has.
        precision: `32-true`, `bf16-mixed` (CUDA, CPU) or `16-mixed` (CUDA).
        accumulate_grad_batches: batches per optimizer step.
        target: where to run, as in `gpulayer.connect`. None: one device in this process, more on `local`. Ignored in a job.
        enable_progress: whether each rank prints a line per epoch.

    Attributes:
        callback_metrics: the newest figure of each logged name.
        history: per epoch its number under `epoch`, and its figures.

    Raises:
        InvalidSpec: naming the argument, what was asked and what is possible.
    """

    def __init__(
        self,
        *,
        max_epochs: int = 1,
        accelerator: str = "auto",
        devices: int | None = None,
        num_nodes: int | None = None,
        precision: str = "32-true",
        accumulate_grad_batches: int = 1,
        target: str | None = None,
        enable_progress: bool = True,
    ) -> None:
        _check_count("max_epochs", max_epochs)
        _check_count("accumulate_grad_batches", accumulate_grad_batches)
        for field, value in (("devices", devices), ("num_nodes", num_nodes)):
            if value is not None:
                _check_count(field, value)
        if accelerator not in ACCELERATORS:
            raise InvalidSpec(
                "There is no such accelerator.", asked=f"accelerator={accelerator!r}", fix=f"Use one of {', '.join(ACCELERATORS)}."
            )
        check_precision(precision, None if accelerator == "auto" else {"rocm": "cuda"}.get(accelerator, accelerator))
        self.max_epochs = max_epochs
        self.accelerator = accelerator
        self.devices = devices
        self.num_nodes = num_nodes
        self.precision = precision
        self.accumulate_grad_batches = accumulate_grad_batches
        self.target = target
        self.enable_progress = enable_progress
        self.callback_metrics: EpochFigures = {}
        self.history: list[EpochFigures] = []

    def fit(self, model: Module, train_loader: Any, val_loader: Any | None = None) -> None:
        """Train the model; afterwards it holds the final weights, wherever the training ran.

        Raises:
            InvalidSpec: the job this runs in has other devices, nodes or accelerator than this Trainer asks for.
            JobFailed: it was launched, and the job ended badly.
        """
        if not isinstance(model, Module):
            raise InvalidSpec("fit trains a gpulayer.pytorch.Module.", found=type(model).__name__, fix="Derive your model from Module.")
        context, replayed = read_rank_context(), replayed_fit()
        if replayed is not None:
            self._replay(model, train_loader, val_loader, replayed)
        elif context.is_rank:
            self._fit_as_rank(model, train_loader, val_loader, next(_fits), context)
        elif self.target is None and (self.devices or 1) * (self.num_nodes or 1) == 1:
            next(_fits)
            self._fit_here(model, train_loader, val_loader)
            if in_notebook():
                self._keep(_current_provider(), model, train_loader, val_loader)
        else:
            self._fit_in_job(model, train_loader, val_loader, next(_fits))

    def _replay(self, model: Module, train_loader: Any, val_loader: Any | None, replayed: ReplayedFit) -> None:
        """Do again what a fit of an earlier cell did; the shape that it asked for is not the one of this job."""
        if replayed.weights is not None and replayed.figures is not None:
            self._take_figures(load_files(replayed.weights, replayed.figures, model))
        else:
            self._fit_here(model, train_loader, val_loader, accelerator="auto")

    def _fit_as_rank(self, model: Module, train_loader: Any, val_loader: Any | None, fit: int, context: RankContext) -> None:
        if context.requested_fit is not None and context.inputs_dir is not None:
            if fit > context.requested_fit:
                sys.exit(0)  # this call has a job of its own: the launching process submits it when it gets here
            earlier = context.inputs_dir / _EARLIER_FITS
            if fit < context.requested_fit and has_fit(earlier, fit):
                self._take_figures(load_fit(earlier, model, fit))
                return
        self._check_against(context)
        self._fit_here(model, train_loader, val_loader)
        if context.output_dir is not None and context.rank == 0:
            save_fit(context.output_dir, fit, model, self._figures())

    def _figures(self) -> dict[str, Any]:
        return {"callback_metrics": self.callback_metrics, "history": self.history}

    def _take_figures(self, figures: dict[str, Any]) -> None:
        self.callback_metrics, self.history = figures["callback_metrics"], figures["history"]

    def _check_against(self, context: RankContext) -> None:
        for field, asked, has, option in (
            ("devices", self.devices, context.devices, "--devices"),
            ("num_nodes", self.num_nodes, context.nodes, "--nodes"),
        ):
            if asked is not None and asked != has:
                raise InvalidSpec(
                    "The Trainer asks for another shape than the job has.",
                    asked=f"{field}={asked}",
                    found=f"the job has {has}",
                    fix=f"Leave {field} out, or start the job with {option} {asked}.",
                )
        if context.devices * context.nodes != context.world_size:
            raise InvalidSpec(
                "The job holds more devices than it has ranks to use them.",
                asked=f"{context.nodes} × {context.devices} devices",
                found=f"{context.world_size} rank(s)",
                fix="Run the script as a DistributedJob (launch(), gpulayer run, %%gpulayer), which starts a rank per device.",
            )

    def _fit_here(self, model: Module, train_loader: Any, val_loader: Any | None, *, accelerator: str | None = None) -> None:
        runtime = Runtime(accelerator or self.accelerator, self.precision)
        model.to(runtime.device)
        self.callback_metrics, self.history = {}, []
        loop = FitLoop(
            model,
            runtime.setup_dataloader(train_loader),
            None if val_loader is None else runtime.setup_dataloader(val_loader, repeats=False),
            runtime=runtime,
            max_epochs=self.max_epochs,
            accumulate_grad_batches=self.accumulate_grad_batches,
            on_epoch=self._end_epoch,
        )
        loop.run()

    def _end_epoch(self, epoch: int, figures: EpochFigures) -> None:
        self.callback_metrics |= figures
        self.history.append({"epoch": epoch, **figures})
        if self.enable_progress:
            words = " ".join(f"{name} {value:.3g}" for name, value in figures.items())
            sys.stdout.write(f"epoch {epoch}/{self.max_epochs} {words}\n")
            sys.stdout.flush()

    def _fit_in_job(self, model: Module, train_loader: Any, val_loader: Any | None, fit: int) -> None:
        from gpulayer.client.downloads import download_outputs
        from gpulayer.targets import connect

        statement = executing_statement()
        _claim_statement(statement)
        in_script = statement is None
        provider = _current_provider()
        source = provider.collect()
        spec = job_from_source(
            source,
            nodes=self.num_nodes or 1,
            devices=self.devices or 1,
            accelerator=self.accelerator,
            launcher=None if in_script or (self.num_nodes or 1) * (self.devices or 1) == 1 else "auto",
            env={REQUESTED_FIT: str(fit)} if in_script else {},
            inputs={_EARLIER_FITS: str(_kept_fits())} if in_script and fit > 0 else {},
        )
        with connect(self.target or "local") as client, tempfile.TemporaryDirectory(prefix="gpulayer-fit-") as folder:
            job = submit_source(client, spec, source)
            provider.follow(job)
            download_outputs(client.transport, weights_among(job.outputs), Path(folder))
            self._take_figures(load_fit(Path(folder), model, fit if in_script else None))
            if in_script:
                keep_fit(Path(folder), fit, _kept_fits())
        self._keep(provider, model, train_loader, val_loader)

    def _keep(self, provider: SourceProvider, model: Module, train_loader: Any, val_loader: Any | None) -> None:
        try:
            provider.keep_weights(model, save_weights, figures=self._figures(), trainer=self, loaders=(train_loader, val_loader))
        except Unsupported as error:
            # The fit itself went well; only later jobs are worse off, and do it again.
            sys.stderr.write(f"gpulayer: later jobs will train this model again: {error.message}\n")


def _current_provider() -> SourceProvider:
    from gpulayer.bundle.source_provider import current_provider
    from gpulayer.client.terminal import follow_in_terminal

    return current_provider(in_terminal=follow_in_terminal)


@functools.cache
def _kept_fits() -> Path:
    """The folder in which this process keeps what its launched fits left, until it ends."""
    folder = Path(tempfile.mkdtemp(prefix="gpulayer-fits-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _claim_statement(statement: tuple[int, Position] | None) -> None:
    """Refuse a second launched fit of one statement of a cell, as in a loop: each one's job would run the whole loop."""
    if statement is None:
        return
    if statement in _launching_statements:
        raise Unsupported(
            "A statement of a cell launches one fit.",
            asked=f"another one from line {statement[1][0][0]} of this cell" if statement[1] else "another one from a thread",
            fix="Write the fits one below the other, or put the loop into a %%gpulayer cell.",
        )
    _launching_statements.add(statement)


def _check_count(field: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidSpec("A whole number from 1 is needed.", asked=f"{field}={value!r}", fix=f"Use {field}=1 or more.")
