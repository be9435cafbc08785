"""Runs one attempt of a task: starts its process through the keeper, hears its ranks, stops what must be stopped.

One thread per task decides, fed by an inbox; the channel, the output reader and the keeper's reader only put things
there. Runs in the agent. Everything that a task started is gone when its result is there.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from gpulayer.errors import Interrupted
from gpulayer.protocol import Failure, FailureReason, RankOutcome
from gpulayer.runtime.channel import ChannelPeer
from gpulayer.runtime.exit_reason import MemoryKills, describe_exit
from gpulayer.runtime.output import OutputReader
from gpulayer.runtime.process import Keeper, TaskOpener
from gpulayer.runtime.rank_stacks import parse_stacks
from gpulayer.runtime.task_blame import Blame
from gpulayer.runtime.task_channel import TaskChannel
from gpulayer.runtime.task_failure import describe_rank_failure
from gpulayer.runtime.task_inbox import TaskInbox
from gpulayer.runtime.task_messages import Exited, Failed, Hello, Launcher, Mark, PeerMessage, Returned
from gpulayer.runtime.task_plan import SHORT_SECONDS, EndReason, TaskEvents, TaskPlan, TaskResult
from gpulayer.runtime.task_processes import START_SECONDS, ProcessExit, StartFailed, TaskProcesses
from gpulayer.runtime.task_ranks import LocalRank, LocalRanks
from gpulayer.runtime.task_stacks import StackDumps
from gpulayer.runtime.task_start import TaskStart
from gpulayer.runtime.task_stop import TaskStop
from gpulayer.spec import DistributedJob

_log = logging.getLogger(__name__)

# A rank's end can be reported by the launcher before the rank's own first message has been taken in.
_UNKNOWN_END_SECONDS = 0.5
# Node 0's launcher stays until the other nodes' ranks run: they may still be loading torch.
_LAUNCHER_END_SECONDS = 120.0


class TaskProcess:
    """One attempt; `run`, or `start` and then `wait`. All methods may be called from any thread.

    Args:
        plan: what to run.
        keeper: below which.
        events: told how it goes.
        zygote: where ranks start that are to start warm.
    """

    def __init__(self, plan: TaskPlan, keeper: Keeper, events: TaskEvents, zygote: TaskOpener | None = None) -> None:
        self._plan = plan
        self._keeper = keeper
        self._events = events
        self._is_distributed = isinstance(plan.spec, DistributedJob)
        self._inbox = TaskInbox()
        self._ranks = LocalRanks(plan.node * plan.local_ranks if self._is_distributed else 0, plan.local_ranks)
        self._blame = Blame(self._ranks, is_alone=plan.nodes == 1 and plan.local_ranks == 1)
        self._unknown_ends: dict[int, ProcessExit] = {}
        self._launcher: ChannelPeer | None = None
        self._failure: Failure | None = None
        self._is_start_told = False
        self._is_over = False
        self._lost = False
        self._memory_kills = keeper.memory_kills
        self._reader: OutputReader | None = None
        self._done = threading.Event()
        self._result = TaskResult(state="failed", ranks=(), failure=self._describe_failure("start", "A fault in GPUlayer."))
        self._processes: TaskProcesses | None = None
        self._start = TaskStart(plan, keeper, zygote)
        self._stacks = StackDumps(keeper.thread, lambda: self._inbox.put(self._stopping.note_stacks))
        self._stopping = TaskStop(self._ranks, self._stacks, self._inbox, grace_seconds=plan.spec.grace_seconds, on_over=self._finish)

    def start(self) -> None:
        """Start the attempt on a thread of its own; whatever keeps it from running is in the result."""
        threading.Thread(target=self.run, name=f"gpulayer-task-{self._plan.task_id}", daemon=True).start()

    def stop(self, reason: EndReason) -> None:
        """Have the attempt ended: `kill` at once, `collateral` after a second, the others after the job's grace."""
        self._inbox.put(lambda: self._stop(reason))

    def wait(self, timeout: float | None = None) -> TaskResult:
        """Block until the attempt has ended and nothing of it is left.

        Raises:
            TimeoutError: it still runs.
        """
        if not self._done.wait(timeout):
            raise TimeoutError(f"task {self._plan.task_id} still runs")
        return self._result

    # ---- the deciding thread

    def run(self) -> TaskResult:
        """Run the attempt in the calling thread, in the place of `start` and `wait`."""
        try:
            with contextlib.ExitStack() as at_end:  # each step of the end is taken, whatever another raises
                self._launch(at_end)
                while not self._is_over:
                    self._inbox.take()()
        except Exception as error:  # noqa: BLE001 - the top of this thread
            # The attempt must end with a result whatever happens here, else its job would run for ever.
            _log.exception("task %s: a fault in its supervision", self._plan.task_id)
            self._failure = self._failure or self._describe_failure("start", f"A fault in GPUlayer: {error!r}")
        try:
            self._result = self._build_result()
        except Exception:  # noqa: BLE001 - as above; the result that it began with stands
            _log.exception("task %s: its result could not be told", self._plan.task_id)
        finally:
            self._done.set()
        return self._result

    def _launch(self, at_end: contextlib.ExitStack) -> None:
        try:
            self._reader = OutputReader(
                self._keeper.thread, self._events.on_output, self._fault_handler("its output can't be taken in any more")
            )
            at_end.callback(self._reader.finish)
            at_end.callback(self._stacks.close)
            self._processes = self._start.open(
                on_exit=lambda ended: self._inbox.put(lambda: self._handle_exit(ended, from_launcher=False)),
                on_lost=lambda: self._inbox.put(self._handle_loss),
            )
            at_end.callback(self._end_processes)
            TaskChannel(
                self._processes.channel,
                self._ranks,
                self._reader,
                self._stacks,
                self._events,
                on_message=lambda peer, message: self._inbox.put(lambda: self._handle_message(peer, message)),
                on_close=lambda peer: self._inbox.put(lambda: self._handle_hang_up(peer)),
                on_fault=self._fault_handler("its ranks can't be heard any more"),
            )
            self._start.launch(self._processes, self._reader)
        except (StartFailed, OSError) as error:
            self._fail_start(error)
            return
        except Interrupted as error:
            self._lost = True
            self._give_up("lost", f"The process could not be started: {error}")
            return
        for rank in self._ranks:
            rank.pid = self._start.rank_pids.get(rank.rank)
        if self._start.launcher_pid is None:
            self._start_clock()
        self._inbox.set_deadline("lasting", SHORT_SECONDS, self._handle_lasting)

    def _handle_lasting(self) -> None:
        """It has lasted, so that it runs is to be told, and to be known for that."""
        if not self._inbox.has_deadline("start"):
            self._memory_kills = self._keeper.memory_kills = MemoryKills.count()
        if self._confirm_start():
            self._inbox.drop_deadline("start")
            self._events.on_lasting()
        elif not self._is_over:
            if not self._inbox.has_deadline("start"):
                self._inbox.set_deadline("start", START_SECONDS, self._handle_stuck_start)
            self._start.when_changed(lambda: self._inbox.put(self._handle_lasting))

    def _handle_stuck_start(self) -> None:
        self._fail_start(StartFailed(f"it has not begun within {START_SECONDS:g} s, as if somebody had stopped it"))

    def _confirm_start(self) -> bool:
        """Whether what was started runs, or has run; what could not ends the attempt."""
        try:
            is_done = self._start.is_done()
        except StartFailed as error:
            self._fail_start(error)
            return False
        if is_done and not self._is_start_told:
            self._is_start_told = True
            self._events.on_started(self._start.launched_at)
        return is_done

    def _fail_start(self, error: Exception) -> None:
        self._give_up("start", f"The process could not be started: {error}.")

    def _fault_handler(self, what: str) -> Callable[[Exception], None]:
        return lambda error: self._inbox.put(lambda: self._give_up("launcher", f"A fault on the worker, {what}: {error}"))

    def _finish(self) -> None:
        self._is_over = True

    # ---- what is heard (channel thread → inbox)

    def _handle_message(self, peer: ChannelPeer, message: PeerMessage) -> None:
        match message:
            case Hello():
                self._handle_hello(peer, message)
            case Failed():
                self._handle_failed(peer, message)
            case Returned():
                self._handle_returned(peer, message)
            case Mark():
                if (rank := self._ranks.find_peer(peer)) is not None:
                    rank.mark(message.name, message.at)
            case Launcher():
                self._launcher = peer
            case Exited():
                self._handle_exit(message.as_exit(), from_launcher=True)

    def _handle_hello(self, peer: ChannelPeer, message: Hello) -> None:
        rank, pid = self._ranks.find(message.rank), message.pid
        if rank is None or rank.peer is not None or (self._start.launcher_pid is None and pid != rank.pid):
            return  # a process that a rank started, with the same environment
        was_unknown = rank.pid is None
        rank.peer, rank.pid = peer, pid
        if message.at is not None:
            rank.mark("entered", message.at)
        self._start_clock()
        if self._is_distributed and self._ranks.all_connected and self._launcher is not None:
            self._launcher.send({"type": "ranks_started"})
        if (ended := self._unknown_ends.pop(pid, None)) is not None:
            self._handle_exit(ended, from_launcher=True)
        elif self._stopping.reason is not None and was_unknown:
            self._stopping.ask_to_end([rank])  # it came up while its siblings were being stopped

    def _handle_failed(self, peer: ChannelPeer, message: Failed) -> None:
        rank = self._ranks.find_peer(peer)
        if rank is not None:
            rank.failed, rank.announced_code, rank.error = True, message.exit_code, message.error
            self._note_failed(rank)
        if self._stopping.reason is None and not self._is_over:
            self._stopping.unanswered.append(peer)
        else:
            peer.send({"type": "ack"})

    def _handle_returned(self, peer: ChannelPeer, message: Returned) -> None:
        rank = self._ranks.find_peer(peer)
        if rank is not None and not rank.failed:
            if message.at is not None:
                rank.mark("returned", message.at)
            self._note_returned(rank)

    def _note_returned(self, rank: LocalRank) -> None:
        rank.returned = True
        # An exit handler that hangs is ended and doesn't turn success into failure.
        self._inbox.set_deadline(f"exit of {rank.rank}", self._plan.spec.grace_seconds, lambda: self._signal_rank(rank, signal.SIGKILL))

    def _handle_hang_up(self, peer: ChannelPeer) -> None:
        rank = self._ranks.find_peer(peer)
        if rank is not None and not rank.returned and not rank.failed:
            rank.hung_up = True

    def _handle_exit(self, ended: ProcessExit, *, from_launcher: bool) -> None:
        if not from_launcher and not self._confirm_start() and self._start.has_failed:
            return
        rank = self._ranks.find_pid(ended.pid)
        if rank is not None:
            if rank.exit is None:
                rank.exit = ended
                rank.mark("ended", time.monotonic())
            self._inbox.drop_deadline(f"exit of {rank.rank}")
            self._note_failed(rank)
        elif ended.pid == self._start.launcher_pid:
            self._handle_launcher_end(ended)
        elif from_launcher:
            self._unknown_ends[ended.pid] = ended
            self._inbox.set_deadline("unknown end", _UNKNOWN_END_SECONDS, self._handle_unknown_end)
        self._look_whether_over()

    def _handle_unknown_end(self) -> None:
        if self._unknown_ends and self._stopping.reason is None:
            ended = next(iter(self._unknown_ends.values()))
            self._give_up("launcher", f"A rank {describe_exit(ended.exit_code, ended.signal)} before it reached its script.")

    def _handle_launcher_end(self, ended: ProcessExit) -> None:
        if self._stopping.reason is None and not self._ranks.all_succeeded and self._failure is None:
            how = describe_exit(ended.exit_code, ended.signal)
            when = "while its ranks ran" if any(rank.pid is not None for rank in self._ranks) else "before its ranks ran"
            self._give_up("launcher", f"The launcher (torchrun) {how} {when}.")
        else:
            self._finish()

    def _handle_loss(self) -> None:
        if self._processes is not None and not self._processes.is_lost:
            return  # of a zygote that died before anything was begun there: it began elsewhere
        self._lost = True
        self._give_up("lost", "The keeper of this task's processes died, and they with it.")

    # ---- what is decided

    def _start_clock(self) -> None:
        limit = self._plan.spec.timeout_seconds
        if limit is not None and not self._inbox.has_deadline("timeout") and self._stopping.reason is None:
            self._inbox.set_deadline("timeout", limit, lambda: self._stop("timeout"))

    def _note_failed(self, rank: LocalRank) -> None:
        """React to what a rank said or to its end: the first that failed is reported, its siblings are stopped."""
        if self._blame.note(rank) and self._stopping.reason is not None and self._failure is not None:
            rank.collateral = True
        self._look_for_guilty()

    def _look_for_guilty(self) -> None:
        """Report the first rank that failed and stop the others, or set the time when that is decided."""
        if not self._blame.is_open or self._stopping.reason is not None or self._is_over:
            return
        guilty = self._blame.choose()
        if guilty is not None:
            self._failure = describe_rank_failure(self._plan, guilty, self._memory_kills, self._last_lines(guilty.rank))
            self._events.on_failure(self._failure)
            self._stop("collateral")
        elif not self._inbox.has_deadline("blame"):
            self._inbox.set_deadline("blame", self._blame.patience_seconds, self._lose_patience)

    def _lose_patience(self) -> None:
        self._blame.lose_patience()
        self._look_for_guilty()

    def _stop(self, reason: EndReason) -> None:
        if reason == "kill" and self._stopping.reason is not None:
            self._finish()
        if self._stopping.reason is not None or self._is_over or self._ranks.all_succeeded:
            return
        self._inbox.drop_deadline("timeout")
        self._inbox.drop_deadline("blame")
        if reason == "timeout":
            limit = self._plan.spec.timeout_seconds
            self._failure = self._describe_failure("timeout", f"The job ran longer than its timeout of {limit:g} s.")
            self._events.on_failure(self._failure)
        self._stopping.begin(reason, self._processes, is_python=self._start.is_python)

    def _signal_rank(self, rank: LocalRank, number: signal.Signals) -> None:
        if self._processes is not None and rank.is_alive and rank.pid is not None:
            self._processes.signal(rank.pid, number)

    def _look_whether_over(self) -> None:
        if self._stopping.reason is not None:
            if not self._ranks.alive:
                self._finish()
        elif self._ranks.all_succeeded:
            if self._launcher is None:
                self._finish()
            elif not self._inbox.has_deadline("launcher end"):
                self._launcher.send({"type": "end"})
                self._inbox.set_deadline("launcher end", _LAUNCHER_END_SECONDS, self._finish)

    def _give_up(self, reason: FailureReason, message: str) -> None:
        """End the attempt for a reason that is not a rank's."""
        if self._failure is None and self._stopping.reason is None:
            self._failure = self._describe_failure(reason, message)
            self._events.on_failure(self._failure)
        self._finish()

    # ---- the end

    def _end_processes(self) -> None:
        self._is_over = True  # also after a fault: what follows is our own killing, and no rank is to blame for it
        if self._processes is None:
            return
        try:
            if not self._lost and not self._processes.is_empty and not self._processes.end():
                _log.error("task %s: a process could not be killed (uninterruptible sleep?)", self._plan.task_id)
            for last_exit in self._inbox.take_all():  # of what was killed, collected before the keeper said that all is gone
                last_exit()
            self._confirm_start()
            self._processes.channel.drain()
        finally:
            self._processes.close()

    def _build_result(self) -> TaskResult:
        outcomes = tuple(self._outcome(rank) for rank in self._ranks)
        failure = self._failure
        if failure is not None:
            failure = msgspec.structs.replace(failure, last_lines=self._last_lines(failure.rank))
            return TaskResult(state="failed", ranks=outcomes, failure=failure)
        state: Literal["cancelled", "succeeded"] = "cancelled" if self._stopping.reason is not None else "succeeded"
        return TaskResult(state=state, ranks=outcomes, failure=None)

    def _outcome(self, rank: LocalRank) -> RankOutcome:
        if self._plan.fetched_at is not None:
            rank.mark("fetched", self._plan.fetched_at)
        if self._plan.equipped_at is not None:
            rank.mark("equipped", self._plan.equipped_at)
        if self._start.launched_at:
            rank.mark("launched", self._start.launched_at)
        outcome = self._start.describe(rank.outcome(self._plan.begun_at))
        dump = self._stacks.of(rank.rank)
        return msgspec.structs.replace(outcome, stacks=parse_stacks(dump, source=self._plan.workspace / "source")) if dump else outcome

    def _describe_failure(self, reason: FailureReason, message: str) -> Failure:
        return Failure(reason=reason, message=message, node=self._plan.node, last_lines=self._last_lines(None))

    def _last_lines(self, rank: int | None) -> tuple[str, ...]:
        return self._reader.last_lines(rank) if self._reader is not None else ()
