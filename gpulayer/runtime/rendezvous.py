"""The rendezvous that torchrun finds as `--rdzv-backend=gpulayer` (entry-point group `torchrun.handlers`).

Runs in the launcher, the only module here besides the launcher's own that imports torch. Node 0 listens on a port that
the kernel picks and publishes it through its agent; the other nodes ask theirs, which holds the answer until it is known.
Ranks share node 0's store (TORCHELASTIC_USE_AGENT_STORE), so no port is ever chosen, freed and hoped for.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
from collections.abc import Callable
from typing import Any

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousParameters, RendezvousStoreInfo

from gpulayer.runtime import rank_environment as names
from gpulayer.runtime.frames import connect

# How long a node waits for the others' launchers; the control plane ends the job sooner where it knows that one failed.
_MEET_TIMEOUT = dt.timedelta(minutes=15)
_STARTED_KEY = "gpulayer/started"


class GPUlayerRendezvous(RendezvousHandler):
    """One meeting of all nodes of an attempt; an attempt never meets twice."""

    current: GPUlayerRendezvous | None = None
    """The handler of this process, for the launcher's end."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._node = int(os.environ[names.NODE])
        self._nodes = int(os.environ[names.NODES])
        self._store: Any = None  # torch's Store; torch exports the name without its type
        GPUlayerRendezvous.current = self

    def get_backend(self) -> str:
        return "gpulayer"

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        address, port, store = self._listen() if self._node == 0 else self._join()
        self._store = PrefixStore(self._run_id, store)
        return RendezvousInfo(self._store, self._node, self._nodes, RendezvousStoreInfo(address, port))

    def note_started(self) -> None:
        """Tell node 0 that this node's ranks run, so that it may go when its own are done."""
        if self._store is not None and self._nodes > 1:
            self._store.set(f"{_STARTED_KEY}/{self._node}", "1")

    def wait_all_started(self) -> None:
        """On node 0, which holds the store: block until every node's ranks run; nobody needs this launcher then."""
        if self._store is not None and self._nodes > 1 and self._node == 0:
            self._store.wait([f"{_STARTED_KEY}/{node}" for node in range(self._nodes)], _MEET_TIMEOUT)

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Nothing to close: an attempt is over when its processes are."""

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        return True

    def _listen(self) -> tuple[str, int, Any]:
        address = os.environ.get(names.ADDRESS, names.LOOPBACK)
        # torch's store has no authentication and listens everywhere by itself: bound here, it is open to the job's network only.
        listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        listener.bind((address, 0))
        listener.listen(4096)
        port = listener.getsockname()[1]
        store = TCPStore(
            host_name=address,
            port=port,
            is_master=True,
            wait_for_workers=False,
            timeout=_MEET_TIMEOUT,
            master_listen_fd=listener.detach(),
        )
        channel = connect(os.environ[names.CHANNEL])
        channel.send({"type": "publish_rendezvous", "address": address, "port": port})
        if (answer := channel.receive_one()) is None or "refused" in answer:
            raise ConnectionError(f"the agent did not take the rendezvous: {answer}")
        channel.close()
        return address, port, store

    def _join(self) -> tuple[str, int, Any]:
        channel = connect(os.environ[names.CHANNEL])
        channel.send({"type": "read_rendezvous"})
        answer = channel.receive_one()
        channel.close()
        if answer is None or "refused" in answer:
            raise ConnectionError(f"the agent did not say where node 0 listens: {answer}")
        address, port = answer["address"], answer["port"]
        store = TCPStore(host_name=address, port=port, is_master=False, wait_for_workers=False, timeout=_MEET_TIMEOUT)
        return address, port, store


def get_handler_factory() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """What the entry point names: torch calls it for a function that makes the handler."""
    return lambda parameters: GPUlayerRendezvous(parameters.run_id)
