"""What ranks and launchers say on the channel, as the agent reads it. Runs in the agent.

The senders (`rank_main`, `torchrun_main`, `rendezvous`) write plain objects: they load nothing for it.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

from gpulayer.protocol import RankError
from gpulayer.runtime.task_processes import ProcessExit


class _Spoken(msgspec.Struct, frozen=True, tag_field="type", tag=str.lower):
    """Unknown fields are ignored."""


class Hello(_Spoken, frozen=True):
    """A rank is there; `files` names those that come with it: of its stdout and stderr where it made these itself, of its stacks."""

    rank: int
    local_rank: int
    pid: int
    at: float | None = None
    files: tuple[Literal["stdout", "stderr", "stacks"], ...] = ()


class Failed(_Spoken, frozen=True):
    """A rank's script has failed; the rank waits for an `ack`."""

    exit_code: int
    error: RankError | None = None


class Returned(_Spoken, frozen=True):
    """A rank's script has run to its end."""

    at: float | None = None


class Mark(_Spoken, frozen=True):
    """A rank has reached a step (`protocol.MARKS`), at this moment of the machine's monotonic clock."""

    name: str
    at: float


class Records(_Spoken, frozen=True):
    """What a rank's code told, as (kind, monotonic seconds, plain data); and how many it had to drop so far, untold."""

    rank: int
    records: tuple[tuple[str, float, dict[str, Any]], ...]
    lost: int = 0


class Launcher(_Spoken, frozen=True):
    """The launcher is there."""

    pid: int


class Exited(_Spoken, frozen=True):
    """A child of the launcher has ended; `code` is negative for a signal."""

    pid: int
    code: int

    def as_exit(self) -> ProcessExit:
        return ProcessExit(pid=self.pid, exit_code=self.code if self.code >= 0 else None, signal=-self.code if self.code < 0 else None)


class PublishRendezvous(_Spoken, frozen=True, tag="publish_rendezvous"):
    """Node 0 listens there; answered once that is stored."""

    address: str
    port: int


class ReadRendezvous(_Spoken, frozen=True, tag="read_rendezvous"):
    """Where does node 0 listen?"""


PeerMessage = Hello | Failed | Returned | Mark | Records | Launcher | Exited | PublishRendezvous | ReadRendezvous
_TAGS = frozenset(kind.__struct_config__.tag for kind in get_args(PeerMessage))


def read_message(fields: dict[str, Any]) -> PeerMessage | None:
    """The message that these fields are; None for one that only another version knows.

    Raises:
        msgspec.ValidationError: it is none.
    """
    if fields.get("type") not in _TAGS:
        return None
    message: PeerMessage = msgspec.convert(fields, PeerMessage)
    return message
