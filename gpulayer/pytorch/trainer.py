"""`Trainer`: decides where a fit runs, and runs it there.

Inside a job, and for one device without a target, the loop runs in this process. Otherwise this process's source (script
or cell) is submitted as a job, in which the same `fit` call runs the loop, and the final weights come back into the model.

**Several fits.** `fit` calls are counted from 0 in every process. A script's job is told which call it is for: it repeats
the fits before that one, runs it and the code after it, and ends at the next `fit`, so that each launched fit has a job of
its own. A notebook launches one fit per cell; its job runs what the cell needs and the cell, and the last fit counts.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path
from typing import Any

from gpulayer.errors import InvalidSpec, Unsupported
from gpulayer.pytorch.launch import job_from_source, submit_source
from gpulayer.pytorch.loop import EpochFigures, FitLoop
from gpulayer.pytorch.module import Module
from gpulayer.pytorch.precision import check_precision
from gpulayer.pytorch.rank_context import REQUESTED_FIT, RankContext, executed_cell, read_rank_context
from gpulayer.pytorch.runtime import Runtime
from gpulayer.pytorch.weights import load_fit, save_fit
from gpulayer.spec import ACCELERATORS

_fits = itertools.count()
_launching_cells: set[int] = set()
"""Cells of this kernel that have launched a fit."""


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
        context = read_rank_context()
        if context.is_rank:
            self._check_against(context)
            fit = next(_fits)
            if context.requested_fit is not None and fit > context.requested_fit:
                sys.exit(0)  # this call has a job of its own: the launching process submits it when it gets here
            self._fit_here(model, train_loader, val_loader)
            if context.output_dir is not None and context.rank == 0:
                figures = {"callback_metrics": self.callback_metrics, "history": self.history}
                save_fit(context.output_dir, fit, model, figures)
        elif self.target is None and (self.devices or 1) * (self.num_nodes or 1) == 1:
            next(_fits)
            self._fit_here(model, train_loader, val_loader)
        else:
            self._fit_in_job(model, next(_fits))

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

    def _fit_here(self, model: Module, train_loader: Any, val_loader: Any | None) -> None:
        runtime = Runtime(self.accelerator, self.precision)
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

    def _fit_in_job(self, model: Module, fit: int) -> None:
        from gpulayer.bundle.source_provider import current_provider
        from gpulayer.targets import connect

        cell = executed_cell()
        _claim_cell(cell)
        provider = current_provider()
        source = provider.collect()
        spec = job_from_source(
            source,
            nodes=self.num_nodes or 1,
            devices=self.devices or 1,
            accelerator=self.accelerator,
            env={REQUESTED_FIT: str(fit)} if cell is None else {},
        )
        if cell is None and fit > 0:
            sys.stderr.write(f"gpulayer: the job for fit {fit} of this script first repeats the {fit} before it\n")
        with connect(self.target or "local") as client:
            job = submit_source(client, spec, source)
            provider.follow(job)
            with tempfile.TemporaryDirectory(prefix="gpulayer-fit-") as folder:
                job.download(Path(folder))
                figures = load_fit(Path(folder), model, fit if cell is None else None)
        self.callback_metrics, self.history = figures["callback_metrics"], figures["history"]


def _claim_cell(cell: int | None) -> None:
    """Refuse a second launched fit in one cell: its job would be the same cell again, with both fits in it."""
    if cell is None:
        return
    if cell in _launching_cells:
        raise Unsupported("A cell launches one fit.", asked="a second one in this cell", fix="Put it into a cell of its own.")
    _launching_cells.add(cell)


def _check_count(field: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidSpec("A whole number from 1 is needed.", asked=f"{field}={value!r}", fix=f"Use {field}=1 or more.")
