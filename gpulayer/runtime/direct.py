"""Ranks that the agent starts itself: where they meet, and the environment that a rank finds under torchrun.

Both other launchers use it: `direct`, and `warm`, whose ranks begin in a zygote. Runs in the agent.
"""

from __future__ import annotations

import contextlib
import socket
import string
from collections.abc import Callable, Mapping
from types import TracebackType

from gpulayer.runtime import rank_environment as names
from gpulayer.spec import DistributedJob

_BACKLOG = 4096
"""Every rank of a large job may connect before the first is accepted; the kernel caps it (net.core.somaxconn)."""


class MeetingPoint:
    """Where the ranks of an attempt find their store. On node 0 with the socket that rank 0 is going to serve it on.

    Args:
        address: of node 0.
        port: there.
        listener: that socket, bound and listening, so that no port is chosen, freed and hoped for.
    """

    def __init__(self, address: str, port: int, listener: socket.socket | None = None) -> None:
        self.address = address
        self.port = port
        self.listener = listener

    def __enter__(self) -> MeetingPoint:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of this process's copy of the socket; rank 0 has its own by then."""
        if self.listener is not None:
            self.listener.close()


def open_meeting(
    *, node: int, nodes: int, address: str, publish: Callable[[str, int], None], read: Callable[[], tuple[str, int]]
) -> MeetingPoint:
    """Listen on node 0 and tell the other nodes; there, ask.

    Args:
        node: this node.
        nodes: how many there are.
        address: where others reach this one; nothing listens anywhere else, since torch's store asks nobody who he is.
        publish: tells the other nodes; blocks until that is stored.
        read: asks where node 0 listens; blocks until that is known.

    Raises:
        OSError: nothing can listen at that address.
    """
    if node > 0:
        return MeetingPoint(*read())
    with contextlib.ExitStack() as made:  # nothing is left open where it can't be had, or nobody can be told
        listener = made.enter_context(socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM))
        listener.bind((address, 0))
        listener.listen(_BACKLOG)
        port = listener.getsockname()[1]
        if nodes > 1:
            publish(address, port)
        made.pop_all()
    return MeetingPoint(address, port, listener)


def rank_variables(
    env: Mapping[str, str],
    *,
    job_id: str,
    attempt: int,
    node: int,
    nodes: int,
    local_rank: int,
    local_ranks: int,
    meeting: MeetingPoint,
) -> dict[str, str]:
    """What torchrun tells a rank by its environment (torch.distributed.run, "Environment Variables"); `env` is the task's.

    `TORCHELASTIC_ERROR_FILE` and `TORCHELASTIC_SIGNALS_TO_HANDLE` are about torchrun's own process and have no place here.
    """
    rank, world_size = node * local_ranks + local_rank, nodes * local_ranks
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(local_ranks),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(nodes),
        "ROLE_RANK": str(rank),
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": meeting.address,
        "MASTER_PORT": str(meeting.port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": names.run_id(job_id, attempt),
        # Rank 0 serves the store beside its script: every rank, rank 0 as well, is a client of it.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        # The one that torchrun leaves as the job has it.
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": env.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }


def rank_words(spec: DistributedJob, local_rank: int) -> list[str]:
    """The words behind the interpreter's for `rank_main`: `${local_rank}` in an argument is the number, as under torchrun."""
    return ["--launcher=direct", spec.script, *(string.Template(word).safe_substitute(local_rank=local_rank) for word in spec.args)]
