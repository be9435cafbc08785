"""How the processes of a task start that the agent starts itself: its command, its torchrun, or each of its ranks.

Which it is stands in the plan. Runs in the agent, in the task's thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable

import msgspec

from gpulayer.errors import Interrupted
from gpulayer.protocol import RankOutcome
from gpulayer.runtime import direct
from gpulayer.runtime.output import OutputReader
from gpulayer.runtime.process import Keeper, TaskOpener
from gpulayer.runtime.rank_environment import CHANNEL, LISTENER
from gpulayer.runtime.rank_records import RANK
from gpulayer.runtime.task_plan import TaskPlan
from gpulayer.runtime.task_processes import ProcessExit, StartFailed, TaskProcesses
from gpulayer.runtime.torchrun import launcher_command
from gpulayer.runtime.warm_start import Start, command_start, rank_start
from gpulayer.spec import CommandJob, DistributedJob

_log = logging.getLogger(__name__)


class TaskStart:
    """The start of one attempt on one node.

    Args:
        plan: of the attempt.
        keeper: that its processes start below.
        zygote: the one from which ranks start that are to start warm.
    """

    def __init__(self, plan: TaskPlan, keeper: Keeper, zygote: TaskOpener | None = None) -> None:
        self._plan = plan
        self._spec = plan.spec if isinstance(plan.spec, DistributedJob) else None
        self._opener: TaskOpener = keeper
        self._zygote = zygote if plan.launcher == "warm" else None
        self._keeper = keeper
        self._cold_reason = plan.cold_reason
        self._processes: TaskProcesses | None = None
        self._starts: dict[int, Start] = {}
        self._unconfirmed: list[int] = []
        self.rank_pids: dict[int, int] = {}
        """The processes of the ranks that are started here, by global rank."""
        self.launcher_pid: int | None = None
        """The process that starts the ranks, where there is one."""
        self.has_failed = False
        """A process could not be started."""
        self.launched_at = 0.0
        """When the first was told what to become, in monotonic seconds."""

    @property
    def is_python(self) -> bool:
        return self._spec is not None or any(start.is_python for start in self._starts.values())

    def open(self, on_exit: Callable[[ProcessExit], None], on_lost: Callable[[], None]) -> TaskProcesses:
        """Make room for the task's processes: where they start warm, or else below the keeper.

        Raises:
            Interrupted: the keeper is gone.
            OSError: no file is to be had for it.
        """
        if self._zygote is not None:
            start = self._command_start(self._zygote) if self._spec is None else self._rank_start(0, self._zygote)
            self._cold_reason = start.cold_reason
            if start.form == "rank":
                try:
                    self._opener = self._zygote
                    return self._zygote.open_task(on_exit, on_lost)
                except Interrupted as died:
                    self._cold_reason = str(died)
            self._zygote, self._opener = None, self._keeper
        return self._keeper.open_task(on_exit, on_lost)

    def launch(self, processes: TaskProcesses, reader: OutputReader) -> None:
        """Have the processes started; that they run is not waited for.

        Args:
            processes: those of the task.
            reader: takes what they print.

        Raises:
            StartFailed: no process is to be had.
            Interrupted: the keeper is gone.
        """
        self._processes = processes
        self.launched_at = time.monotonic()
        if self._spec is None:
            # What a command runs speaks for its one rank, also where it does not begin with `rank_main`.
            self.rank_pids[0] = self._launch(self._command_start(self._opener), 0, reader, {RANK: "0"})
        elif self._plan.launcher in (None, "torchrun"):
            start = Start(argv=launcher_command(self._spec, self._plan.python), is_python=True)
            self.launcher_pid = self._launch(start, None, reader, {})
        else:
            self._launch_ranks(reader)

    def _launch_ranks(self, reader: OutputReader) -> None:
        plan = self._plan
        meeting = plan.meeting
        assert meeting is not None
        assert self._processes is not None
        local_ranks = plan.local_ranks
        self._processes.expect(local_ranks)
        # Rank 0 first: it serves what the others connect to.
        for local_rank in range(local_ranks):
            variables = direct.rank_variables(
                plan.env,
                job_id=plan.job_id,
                attempt=plan.attempt,
                node=plan.node,
                nodes=plan.nodes,
                local_rank=local_rank,
                local_ranks=local_ranks,
                meeting=meeting,
            )
            rank = plan.node * local_ranks + local_rank
            files = {} if rank or meeting.listener is None else {LISTENER: meeting.listener.fileno()}
            start = self._rank_start(local_rank, self._opener)
            self.rank_pids[rank] = self._launch(start, rank, reader, variables, files)
        meeting.close()

    def _launch(
        self, start: Start, rank: int | None, reader: OutputReader, variables: dict[str, str], files: dict[str, int] | None = None
    ) -> int:
        assert self._processes is not None
        with contextlib.ExitStack() as closing:
            stdout = reader.open_pipe(rank, "stdout")
            closing.callback(os.close, stdout)
            stderr = reader.open_pipe(rank, "stderr")
            closing.callback(os.close, stderr)
            pid = self._processes.launch(
                start.argv,
                cwd=f"{self._plan.workspace}/source",
                env={**self._plan.env, CHANNEL: self._processes.channel.path, **variables},
                stdout=stdout,
                stderr=stderr,
                form=start.form,
                executable=start.executable,
                files=files,
            )
        self._starts[pid] = start
        self._unconfirmed.append(pid)
        return pid

    def _command_start(self, opener: TaskOpener) -> Start:
        plan = self._plan
        assert isinstance(plan.spec, CommandJob)
        has_torch = opener is self._zygote
        return command_start(plan.spec.argv, plan.env, python=plan.python, parked=opener, mode=plan.start, has_torch=has_torch)

    def _rank_start(self, local_rank: int, opener: TaskOpener) -> Start:
        assert self._spec is not None
        words = direct.rank_words(self._spec, local_rank)
        return rank_start(
            words, self._plan.env, python=self._plan.python, parked=opener, mode=self._plan.start, has_torch=opener is self._zygote
        )

    def is_done(self) -> bool:
        """Whether all processes run, or have run; False while that is not known.

        Raises:
            StartFailed: naming what failed and why; that process is gone.
        """
        if self.has_failed or self._processes is None or not self._starts:
            return False
        for pid in list(self._unconfirmed):  # in any order: one may have ended before another has begun
            try:
                if not self._processes.is_started(pid):
                    continue
            except StartFailed:
                self.has_failed = True
                raise
            self._unconfirmed.remove(pid)
            if (reason := self._why_cold(pid)) is not None:
                _log.info("task %s starts as a new program: %s", self._plan.task_id, reason)
        return not self._unconfirmed

    def when_changed(self, call: Callable[[], None]) -> None:
        """Have this called once, from the event thread, when `is_done` has more to say than it had."""
        if self._unconfirmed and self._processes is not None:
            self._processes.when_started(self._unconfirmed[0], call)
        else:
            call()

    def describe(self, outcome: RankOutcome) -> RankOutcome:
        """The outcome, with who started it and how."""
        pid = self.rank_pids.get(outcome.rank)
        if self._spec is not None and self.launcher_pid is not None:
            return msgspec.structs.replace(outcome, launcher="torchrun", cold_reason=self._cold_reason)
        if pid is None or pid in self._unconfirmed:
            return outcome
        reason = self._why_cold(pid)
        is_warm = self._starts[pid].form is not None and reason is None
        if self._spec is None:
            has_torch = self._zygote is not None and is_warm
            return msgspec.structs.replace(
                outcome,
                launcher="warm" if has_torch else None,
                start="warm" if is_warm else "cold",
                cold_reason=reason if reason is not None or has_torch else self._cold_reason,
            )
        if self._zygote is None:
            return msgspec.structs.replace(outcome, launcher="direct", cold_reason=self._cold_reason)
        return msgspec.structs.replace(outcome, launcher="warm" if is_warm else "direct", cold_reason=reason)

    def _why_cold(self, pid: int) -> str | None:
        return self._starts[pid].cold_reason or (self._processes.cold_reasons.get(pid) if self._processes is not None else None)
