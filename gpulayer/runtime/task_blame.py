"""Which rank of this node failed first, and how long to wait before believing it. Runs in the agent.

`task_process` tells what it hears of the ranks and looks again when it is told to; what follows from the answer is its.
"""

from __future__ import annotations

from gpulayer.runtime.task_ranks import LocalRank, LocalRanks, Patience

# How long a rank's complaint is held, since a peer's death may have caused it: that shows within milliseconds, and later
# when the machine is busy. With the stacks of the others (`task_stop`), less than a rank waits to be answered (`rank_channel`).
ANY_END_SECONDS = 0.2
SILENT_END_SECONDS = 0.5


class Blame:
    """The search for the guilty rank.

    Args:
        ranks: this node's.
        is_alone: there is one rank in the whole job, so nobody else can be guilty.
    """

    def __init__(self, ranks: LocalRanks, *, is_alone: bool) -> None:
        self._ranks = ranks
        self._failed: list[LocalRank] = []
        self._patience = Patience.NONE if is_alone else Patience.FOR_ANY_END

    def note(self, rank: LocalRank) -> bool:
        """Take in what a rank said, or its end; whether it is news that it has failed."""
        if not rank.has_failed or rank in self._failed:
            return False
        self._failed.append(rank)
        return True

    def choose(self) -> LocalRank | None:
        """The guilty rank, with the others that failed marked as collateral; None while that is not known."""
        guilty = self._ranks.choose_guilty(self._failed, self._patience)
        if guilty is not None:
            for rank in self._failed:
                rank.collateral = rank is not guilty
        return guilty

    @property
    def is_open(self) -> bool:
        """Whether a rank has failed."""
        return bool(self._failed)

    @property
    def patience_seconds(self) -> float:
        """How long to wait before `lose_patience`."""
        return ANY_END_SECONDS if self._patience is Patience.FOR_ANY_END else SILENT_END_SECONDS

    def lose_patience(self) -> None:
        """Wait for less from here on."""
        self._patience = Patience.FOR_SILENT_END if self._patience is Patience.FOR_ANY_END else Patience.NONE
