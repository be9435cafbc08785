"""The thread that ships one kind of what an attempt's ranks tell: there once there is something, gone once all is sent or dropped.

What is gathered, and how it is sent, is the senders': metrics, displays, progress. Output has its own (`log_sender`). Runs in the agent.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from gpulayer.errors import AttemptLost, GPUlayerError, Interrupted

_log = logging.getLogger(__name__)


class AttemptSender(ABC):
    """Ends with `close` or `abandon`, or with the attempt.

    Args:
        kind: what it ships, for the thread's name.
        missing: how the job's log says that not all of it came, such as "Metrics are missing".
        on_lost: called once, from the sender's thread, when the control plane says that the attempt is over.
        tell: told once for each reason why something is missing, in words for the job's log; from whichever thread meets it.
    """

    def __init__(self, kind: str, *, missing: str, on_lost: Callable[[GPUlayerError], None], tell: Callable[[str], None]) -> None:
        self._kind = kind
        self._missing = missing
        self._on_lost = on_lost
        self._tell = tell
        self._told: set[str] = set()
        self._changed = threading.Condition()
        self._closing = False
        self._abandoned = False
        self._thread: threading.Thread | None = None
        # What ranks stamp is monotonic; one offset for the whole attempt keeps their order whatever the wall clock does.
        self._epoch = time.time() - time.monotonic()

    def close(self, wait: float | None = None) -> bool:
        """Take nothing more and send what is left; True when all was delivered within `wait` seconds (None: no limit)."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(wait)
        return not self._abandoned and (thread is None or not thread.is_alive())

    def abandon(self) -> None:
        """Drop what is left; the thread ends once a request under way is answered."""
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()

    @abstractmethod
    def _ship_next(self) -> bool:
        """Wait for what is due and send it; False when there will be no more. What the control plane refuses is no reason to end.

        Raises:
            Interrupted: nobody takes it any more.
            AttemptLost: the attempt is over.
        """

    def _wake(self) -> None:
        """Have the thread look at what waits; called with the lock held."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"gpulayer-{self._kind}", daemon=True)
            self._thread.start()
        else:
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while self._ship_next():
                pass
        except Interrupted:
            self.abandon()
        except AttemptLost as error:
            self.abandon()
            self._on_lost(error)
        except Exception:  # noqa: BLE001 - the top of this thread: the job goes on without these, and its log says so
            _log.exception("an attempt's %s can't be sent any more", self._kind)
            self.abandon()
            self._tell_missing("a fault of the worker, which its log names.")

    def _tell_missing(self, why: str) -> None:
        """Say in the job's log, once, why not all of it is there."""
        with self._changed:
            if why in self._told:
                return
            self._told.add(why)
        self._tell(f"{self._missing}: {why}")
