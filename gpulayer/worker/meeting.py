"""How the nodes of one attempt tell each other where they meet: through the control plane, by held calls."""

from __future__ import annotations

import threading

from gpulayer.errors import Interrupted
from gpulayer.protocol import PublishRendezvous, ReadRendezvous, Rendezvous
from gpulayer.settings import LONG_POLL_SECONDS
from gpulayer.worker.attempt_calls import AttemptCalls


class Meeting:
    """One attempt's rendezvous.

    Args:
        calls: of the attempt.
    """

    def __init__(self, calls: AttemptCalls) -> None:
        self._calls = calls

    def publish(self, address: str, port: int, give_up: threading.Event | None = None) -> None:
        """Say where node 0 listens; blocks until it is stored, or until another `give_up` than the attempt's is set.

        Raises:
            Interrupted: the attempt is over.
        """
        request = PublishRendezvous(address=address, port=port, **self._calls.fields)
        self._calls.call("publish_rendezvous", request, give_up)

    def read(self, give_up: threading.Event | None = None) -> tuple[str, int]:
        """Where node 0 listens; blocks until it has said so, or until another `give_up` than the attempt's is set.

        Raises:
            Interrupted: the attempt is over.
        """
        request = ReadRendezvous(wait=LONG_POLL_SECONDS, **self._calls.fields)
        given_up = give_up or self._calls.give_up
        while not given_up.is_set():
            found: Rendezvous = self._calls.call("read_rendezvous", request, given_up)
            if found.address is not None and found.port is not None:
                return found.address, found.port
        raise Interrupted("The attempt ended before its nodes met.")
