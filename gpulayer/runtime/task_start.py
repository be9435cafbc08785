"""How the first process of a task starts: its command, or the launcher of its ranks. Runs in the agent, in the task's thread."""

from __future__ import annotations

import contextlib
import logging
import os
import time

import msgspec

from gpulayer.protocol import RankOutcome
from gpulayer.runtime.output import OutputReader
from gpulayer.runtime.process import Keeper
from gpulayer.runtime.rank_environment import CHANNEL
from gpulayer.runtime.task_plan import TaskPlan
from gpulayer.runtime.task_processes import StartFailed, TaskProcesses
from gpulayer.runtime.warm_start import start_of
from gpulayer.spec import DistributedJob

_log = logging.getLogger(__name__)


class TaskStart:
    """The start of one attempt on one node.

    Args:
        plan: of the attempt.
        keeper: that it starts below.
    """

    def __init__(self, plan: TaskPlan, keeper: Keeper) -> None:
        self._plan = plan
        self._is_distributed = isinstance(plan.spec, DistributedJob)
        self._start = start_of(plan, keeper.python, keeper.environment)
        self._processes: TaskProcesses | None = None
        self._is_done = False
        self.has_failed = False
        """No process runs, or has run."""
        self.pid: int | None = None
        """None until there is a process."""
        self.launched_at = 0.0
        """When it was told what to become, in monotonic seconds."""

    @property
    def is_python(self) -> bool:
        return self._start.is_python

    def launch(self, processes: TaskProcesses, reader: OutputReader) -> None:
        """Have the process started; that it runs is not waited for.

        Args:
            processes: those of the task.
            reader: takes what it prints.

        Raises:
            StartFailed: no process is to be had.
            Interrupted: the keeper is gone.
        """
        output_rank = None if self._is_distributed else 0
        with contextlib.ExitStack() as closing:
            stdout = reader.open_pipe(output_rank, "stdout")
            closing.callback(os.close, stdout)
            stderr = reader.open_pipe(output_rank, "stderr")
            closing.callback(os.close, stderr)
            self._processes = processes
            self.launched_at = time.monotonic()
            self.pid = processes.launch(
                self._start.argv,
                cwd=f"{self._plan.workspace}/source",
                env={**self._plan.env, CHANNEL: processes.channel.path},
                stdout=stdout,
                stderr=stderr,
                form=self._start.form,
                executable=self._start.executable,
            )

    def is_done(self) -> bool:
        """Whether the process runs, or has run; False while that is not known.

        Raises:
            StartFailed: naming what failed and why; the process is gone.
        """
        if self.has_failed or self._processes is None or self.pid is None:
            return False
        try:
            if not self._processes.is_started(self.pid):
                return False
        except StartFailed:
            self.has_failed = True
            raise
        if not self._is_done and (reason := self._cold_reason()) is not None:
            _log.info("task %s starts as a new program: %s", self._plan.task_id, reason)
        self._is_done = True
        return True

    def describe(self, outcome: RankOutcome) -> RankOutcome:
        """The outcome, with how its process started."""
        if self._is_distributed or not self._is_done:
            return outcome
        reason = self._cold_reason()
        is_warm = self._start.form is not None and reason is None
        return msgspec.structs.replace(outcome, start="warm" if is_warm else "cold", cold_reason=reason)

    def _cold_reason(self) -> str | None:
        return self._start.cold_reason or (self._processes.cold_reason if self._processes is not None else None)
