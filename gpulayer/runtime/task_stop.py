"""How the ranks of an attempt are stopped: asked what they are doing, asked to end, and ended when their time is up.

Runs in the agent, in the task's thread; that they are to be stopped is `task_process`'s to say.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable

from gpulayer.runtime.channel import ChannelPeer
from gpulayer.runtime.process_tree import catches_signal, ignores_signal
from gpulayer.runtime.task_inbox import TaskInbox
from gpulayer.runtime.task_plan import EndReason
from gpulayer.runtime.task_processes import TaskProcesses
from gpulayer.runtime.task_ranks import LocalRank, LocalRanks
from gpulayer.runtime.task_stacks import StackDumps
from gpulayer.settings import COLLATERAL_GRACE_SECONDS

# How long ranks have to say what they are doing, before they are stopped: until all have begun, and then a moment more.
STACKS_SECONDS = 0.5
_STACKS_REST_SECONDS = 0.02


class TaskStop:
    """The stopping of one attempt.

    Args:
        ranks: this node's.
        stacks: what they say they are doing.
        inbox: of the task's thread.
        grace_seconds: what each may take after the first signal, unless another failed.
        on_over: called when nobody is waited for any longer.
    """

    def __init__(
        self, ranks: LocalRanks, stacks: StackDumps, inbox: TaskInbox, *, grace_seconds: float, on_over: Callable[[], None]
    ) -> None:
        self.reason: EndReason | None = None
        """Why the attempt is being stopped; None while it is not."""
        self.unanswered: list[ChannelPeer] = []
        """Ranks that said they have failed. They stay until the guilty one is known and the others have said what they are doing, so
        that their own end misleads nobody."""
        self._ranks = ranks
        self._stacks = stacks
        self._inbox = inbox
        self._grace_seconds = grace_seconds
        self._on_over = on_over
        self._processes: TaskProcesses | None = None
        self._is_python = True

    def begin(self, reason: EndReason, processes: TaskProcesses | None, *, is_python: bool) -> None:
        """Stop the ranks.

        Args:
            reason: `kill` at once, `collateral` after a second, the others after the grace.
            processes: the task's.
            is_python: what isn't is interrupted as from a terminal.
        """
        self.reason = reason
        self._processes = processes
        self._is_python = is_python
        if reason == "collateral":
            for rank in self._ranks:  # those that have not even connected as well
                if rank.exit is None:
                    rank.collateral = rank.collateral or not (rank.failed or rank.returned)
        silent = [rank for rank in self._ranks.alive if not (rank.failed or rank.returned)]
        if reason in ("collateral", "timeout") and processes is not None and self._stacks.ask(processes, silent):
            self._inbox.set_deadline("stacks", STACKS_SECONDS, self._end_ranks)
        else:
            self._end_ranks()

    def note_stacks(self) -> None:
        """All that were asked have begun to answer."""
        if self._inbox.has_deadline("stacks") and not self._inbox.has_deadline("rest of stacks"):
            self._inbox.set_deadline("rest of stacks", _STACKS_REST_SECONDS, self._end_ranks)

    def ask_to_end(self, ranks: Iterable[LocalRank]) -> None:
        """Send SIGTERM to siblings of a failed rank; to others SIGINT, which Python unwinds from, or SIGTERM if they handle that.

        The ranks get it and not what they started: a loader worker that dies first spoils an emergency checkpoint. A rank that
        has said how it ended is leaving, and still has to flush what it printed.
        """
        for rank in ranks:
            if rank.pid is None or rank.failed or rank.returned or self._processes is None:
                continue
            is_collateral = self.reason == "collateral"  # these mostly sit in a collective that can't end
            if is_collateral or catches_signal(rank.pid, signal.SIGTERM) or ignores_signal(rank.pid, signal.SIGINT):
                self._processes.signal(rank.pid, signal.SIGTERM)
            else:  # a command that isn't Python as from a terminal, with its process group
                self._processes.signal(rank.pid, signal.SIGINT, group=not self._is_python)

    def _end_ranks(self) -> None:
        self._inbox.drop_deadline("stacks")
        self._inbox.drop_deadline("rest of stacks")
        for peer in self.unanswered:
            peer.send({"type": "ack"})
        alive = self._ranks.alive
        if self.reason == "kill" or not alive:
            self._on_over()
            return
        self.ask_to_end(alive)
        if self.reason == "collateral":
            self._inbox.set_deadline("stop", COLLATERAL_GRACE_SECONDS, self._on_over)
        else:
            self._inbox.set_deadline("stop", self._grace_seconds, self._end_of_grace)

    def _end_of_grace(self) -> None:
        for rank in self._ranks.alive:
            if self._processes is not None and rank.pid is not None:
                self._processes.signal(rank.pid, signal.SIGTERM)
        self._inbox.set_deadline("stop", COLLATERAL_GRACE_SECONDS, self._on_over)
