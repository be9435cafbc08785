"""The worker's line to its control plane: one transport at a time, replaced when the server comes back elsewhere.

Shared by all threads of an agent. Who waits for the server waits here, and is woken by the first call that gets through.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from gpulayer.calls import CALLS
from gpulayer.client.transport import Transport
from gpulayer.errors import GPUlayerError, InternalError, Interrupted, ServerUnreachable, TooManyCalls
from gpulayer.protocol import Digest, Message

T = TypeVar("T")

PASSING = (ServerUnreachable, InternalError, TooManyCalls)
"""What a call may fail with that the next try may not: nobody's verdict on the worker or its attempts."""
FIRST_RETRY_SECONDS = 0.1
LAST_RETRY_SECONDS = 2.0
"""A worker asks for its server about this often; a restarted Jupyter server takes some seconds anyway."""

_log = logging.getLogger(__name__)


class Retries:
    """The pauses between the tries of one call: each twice as long as the last, and never shorter than the server asks for."""

    def __init__(self) -> None:
        self._next = FIRST_RETRY_SECONDS

    def next_pause(self, error: GPUlayerError) -> float:
        """Seconds to wait after this error; `Retry-After` of an answer is in its details."""
        pause = max(self._next, float(error.details.get("retry_after_seconds", 0.0)))
        self._next = min(2 * self._next, LAST_RETRY_SECONDS)
        return pause


class ServerLink:
    """Calls on whichever server of the home is alive.

    Args:
        transport: the way to the first one.
        rediscover: finds the next one once that is gone; None while there is none.
        clock: monotonic seconds.
    """

    def __init__(
        self, transport: Transport, rediscover: Callable[[], Transport | None] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._transport = transport
        self._rediscover = rediscover
        self._clock = clock
        self._changed = threading.Condition()
        self._generation = 0  # grows when a call gets through after one did not
        self._reachable = True
        self._heard_at = clock()
        self._searching = threading.Lock()
        self._closed = False

    @property
    def transport(self) -> Transport:
        return self._transport

    def silent_seconds(self) -> float:
        """How long ago a control plane last answered, whatever it said; 0 while the last call got through."""
        return 0.0 if self._reachable else self._clock() - self._heard_at

    def call(self, name: str, request: Message, *, timeout: float | None = None) -> Any:
        """One call by its name in `CALLS`.

        Raises:
            ServerUnreachable: nobody answered; the next server of the home has been looked for.
            GPUlayerError: what the control plane refused with.
        """
        return self._through(lambda transport: transport.call(CALLS[name], request, timeout=timeout))

    def get_artifact(self, sha256: Digest, destination: Path) -> None:
        self._through(lambda transport: transport.get_artifact(sha256, destination))

    def put_artifact(self, path: Path, sha256: Digest) -> None:
        self._through(lambda transport: transport.put_artifact(path, sha256))

    def patiently(self, what: Callable[[], T], give_up: threading.Event) -> T:
        """Repeat `what` while the server is away or has a fault of its own, until `give_up`.

        Raises:
            Interrupted: `give_up` was set, or the link closed.
            GPUlayerError: what the control plane refused with.
        """
        retries = Retries()
        said = ""
        while True:
            if give_up.is_set() or self._closed:
                raise Interrupted("The worker has stopped waiting for the control plane.")
            try:
                return what()
            except PASSING as error:
                pause = retries.next_pause(error)
                if said != str(error):  # once for each reason, however long it lasts
                    said = str(error)
                    _log.info("trying again until it works: %s", said)
                self.wait_for_server(pause, give_up)

    def wait_for_server(self, seconds: float, give_up: threading.Event) -> None:
        """Wait at most so long; ends at once when the server is back (`wake`: or when `give_up` has been set)."""
        with self._changed:
            seen = self._generation
            self._changed.wait_for(lambda: self._closed or give_up.is_set() or self._generation != seen, timeout=seconds)

    def wake(self) -> None:
        """Let every waiter look at its `give_up` again."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End held calls and waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._transport.close()

    def _through(self, call: Callable[[Transport], T]) -> T:
        transport = self._transport
        try:
            answer = call(transport)
        except ServerUnreachable:
            self._note_silence(transport)
            raise
        except Interrupted as error:
            # The control plane is closing, or another thread has replaced this transport: either way there may be another.
            if self._closed:
                raise
            self._note_silence(transport)
            raise ServerUnreachable("The control plane ended the call.", asked=transport.description, found=str(error)) from error
        except GPUlayerError:
            self._note_answer()
            raise
        self._note_answer()
        return answer

    def _note_answer(self) -> None:
        with self._changed:
            self._heard_at = self._clock()
            if not self._reachable:
                self._reachable = True
                self._generation += 1
                self._changed.notify_all()
                _log.info("the control plane answers again: %s", self._transport.description)

    def _note_silence(self, failed: Transport) -> None:
        with self._changed:
            if self._reachable:
                self._reachable = False
                _log.warning("the control plane does not answer: %s", failed.description)
        # One thread looks for the next server; the others go on waiting.
        if self._rediscover is None or failed is not self._transport or not self._searching.acquire(blocking=False):
            return
        try:
            found = self._rediscover()
            if found is None:
                return
            if self._closed or _leads_to(found, failed):
                # The same server: other threads' calls may be held there, and end with the transport they were made on.
                found.close()
                return
            _log.info("going on with %s", found.description)
            self._transport = found
            failed.close()
            with self._changed:
                self._generation += 1
                self._changed.notify_all()
        except (GPUlayerError, OSError) as error:
            _log.info("no server found: %s", error)
        finally:
            self._searching.release()


def _leads_to(one: Transport, other: Transport) -> bool:
    """Whether both lead to the same address; in-process ones have none, and each is a control plane of its own."""
    url = getattr(one, "url", None)
    return url is not None and url == getattr(other, "url", None)
