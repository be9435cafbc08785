"""The ranks of one node as the agent knows them: what each said, how it ended, and which of them failed first.

Bookkeeping only: `task_process` feeds it and acts on what it answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from gpulayer.protocol import MARKS, RankError, RankOutcome
from gpulayer.runtime.channel import ChannelPeer
from gpulayer.runtime.task_processes import ProcessExit

# As gloo, NCCL and torch's store word it; a backward pass raises them outside torch.distributed.
_OF_PEERS = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "ncclRemoteError", "NCCL communicator was aborted")


class Patience(Enum):
    """What is still waited for before a rank's complaint is believed."""

    FOR_ANY_END = "any rank may yet turn out to have died first"
    FOR_SILENT_END = "only one that has hung up without a word may"
    NONE = "the first complaint counts"


def complains_of_peers(error: RankError) -> bool:
    """Whether a rank's exception may well be what another rank's end made of a collective or of the store."""
    return (bool(error.frames) and "/torch/distributed/" in error.frames[-1].file) or any(word in error.message for word in _OF_PEERS)


@dataclass(slots=True, kw_only=True, eq=False)
class LocalRank:
    """One rank of this node."""

    rank: int
    local_rank: int
    pid: int | None = None
    peer: ChannelPeer | None = None
    returned: bool = False
    """Its script ran to its end."""
    failed: bool = False
    """It said that its script did not."""
    error: RankError | None = None
    announced_code: int | None = None
    hung_up: bool = False
    """Its connection ended without a word, so most likely its process has, and its status follows."""
    exit: ProcessExit | None = None
    collateral: bool = False
    marks: dict[str, float] = field(default_factory=dict)
    """When it reached which step (`protocol.MARKS`), in monotonic seconds."""

    @property
    def is_alive(self) -> bool:
        return self.pid is not None and self.exit is None

    @property
    def has_succeeded(self) -> bool:
        return self.exit is not None and (self.returned or self.exit.exit_code == 0)

    @property
    def has_failed(self) -> bool:
        return self.failed or (self.exit is not None and not self.has_succeeded)

    def mark(self, name: str, at: float) -> None:
        """Note when it reached a step; the first word counts, but for the last training step."""
        if name in MARKS and (name == "last_step" or name not in self.marks):
            self.marks[name] = at

    def outcome(self, begun_at: float = 0.0) -> RankOutcome:
        """How it ended, for the record; its marks count from `begun_at`."""
        return RankOutcome(
            rank=self.rank,
            local_rank=self.local_rank,
            pid=self.pid,
            exit_code=self.exit.exit_code if self.exit is not None else None,
            signal=self.exit.signal if self.exit is not None else None,
            returned=self.returned,
            collateral=self.collateral,
            error=self.error,
            marks={name: round(self.marks[name] - begun_at, 6) for name in MARKS if name in self.marks},
        )


class LocalRanks:
    """All ranks of this node, by global rank."""

    def __init__(self, first_rank: int, count: int) -> None:
        self._ranks = {first_rank + local: LocalRank(rank=first_rank + local, local_rank=local) for local in range(count)}

    def __iter__(self) -> Iterator[LocalRank]:
        return iter(self._ranks.values())

    def find(self, rank: int) -> LocalRank | None:
        return self._ranks.get(rank)

    def find_peer(self, peer: ChannelPeer) -> LocalRank | None:
        return next((rank for rank in self if rank.peer is peer), None)

    def find_pid(self, pid: int) -> LocalRank | None:
        return next((rank for rank in self if rank.pid == pid), None)

    @property
    def alive(self) -> list[LocalRank]:
        return [rank for rank in self if rank.is_alive]

    @property
    def all_connected(self) -> bool:
        return all(rank.pid is not None for rank in self)

    @property
    def all_succeeded(self) -> bool:
        return all(rank.has_succeeded for rank in self)

    def choose_guilty(self, failed: Iterable[LocalRank], patience: Patience) -> LocalRank | None:
        """The rank that failed first, or None while patience may still tell.

        A rank that raises because a peer is gone can say so before anything is known of the peer: a dying process closes
        its connections in no certain order, and its status comes last. So a rank that ends without a word is guilty
        before one that complains; and one that complains of its own error before one that complains of its peers, since the
        guilty one may be in a `finally` that closes its connections, and has not come to its own complaint.
        """
        candidates = list(failed)
        ended_silently = [rank for rank in candidates if not rank.failed]
        if ended_silently:
            return ended_silently[0]
        if patience is Patience.FOR_ANY_END or (
            patience is Patience.FOR_SILENT_END and any(rank.hung_up and rank.is_alive for rank in self)
        ):
            return None
        of_their_own = [rank for rank in candidates if rank.error is None or not complains_of_peers(rank.error)]
        if of_their_own:
            return of_their_own[0]
        return candidates[0] if candidates and patience is Patience.NONE else None
