"""The agent's side of a zygote: a process that has torch imported, from which the ranks of a warm start are forked ahead.

It is started below the worker's keeper, for one Python environment, when the first job asks for it. Nothing here decides who
may start in it (`worker/launching.py`). What it does then stands in `keeper.py`, how a parked process becomes a rank in `parked.py`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence

from gpulayer.errors import Interrupted
from gpulayer.runtime.frames import FrameSocket
from gpulayer.runtime.process import Keeper
from gpulayer.runtime.task_keeper_pool import TaskKeeperPool
from gpulayer.runtime.task_processes import ProcessExit, TaskProcesses

_log = logging.getLogger(__name__)

TORCH_MODULES = ("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo", "threadpoolctl")
"""`DistributedDataParallel()` imports torch._dynamo, which is a second of every cold rank; the last sets threads after the fork."""
READY_SECONDS = 120.0
"""The imports take some seconds; from a network file system, minutes. A job that has waited so long starts without."""

_DIED = "its zygote has died"


class Zygote:
    """One zygote, or the next one: when it has died, the next job but one finds another.

    Args:
        keeper: below which it runs.
        modules: what it imports.
        parked: how many ranks it holds ready: as many as the worker has devices.
    """

    def __init__(self, keeper: Keeper, modules: Sequence[str] = TORCH_MODULES, *, parked: int = 1) -> None:
        self.python = keeper.python
        self.environment = keeper.environment
        self.pid: int | None = None
        """Its process, once it is ready."""
        self._keeper = keeper
        self._modules = tuple(modules)
        self._pool = TaskKeeperPool(keeper.thread, keeper.environment, name=f"warm-{id(self):x}", spares=1, parked=parked)
        self._starting = threading.Lock()
        self._changed = threading.Condition()
        self._connection: FrameSocket | None = None
        self._is_ready = False
        self._is_closed = False
        self._refusal: str | None = None  # a module after whose import no process can be forked: it will not be otherwise next time
        self._gone: str | None = None
        self._is_slow = False  # somebody has waited for it in vain; nobody does again until it is there
        keeper.call_at_end(self._pool.hang_up)

    def start(self) -> None:
        """Have it started, unless it is there or can't be; it is not waited for."""
        with self._starting:
            with self._changed:
                if self._connection is not None or self._refusal is not None or self._is_closed:
                    return
                self._gone = None
            # Not under the other lock, which the event thread takes: a keeper that is started anew waits for that.
            try:
                connection, folder = self._keeper.open_zygote(self._modules)
            except Interrupted as error:
                with self._changed:
                    self._gone = str(error)
                return
            with self._changed:
                self._connection = connection
                self._is_slow = False
            # Before it is listened to: its end is to find the pool connected.
            self._pool.connect(connection, folder)
            self._keeper.thread.add(connection, lambda: self._hear(connection))

    @property
    def is_ready(self) -> bool:
        with self._changed:
            return self._is_ready

    def wait_ready(self, give_up: Callable[[], bool]) -> str | None:
        """Start it if need be and wait until it is ready; or why it is not to be had.

        Args:
            give_up: whether nobody waits any longer; looked at after each `wake`.
        """
        with self._changed:
            gone = self._gone
        self.start()
        if gone is not None:  # whoever waits for the next one may wait for the end of that one as well
            return gone
        with self._changed:
            if not self._is_slow:
                self._changed.wait_for(lambda: self._is_ready or self._connection is None or give_up(), READY_SECONDS)
            if self._is_ready:
                return None
            if self._connection is None:
                return self._refusal or self._gone or "its zygote has been closed"
            if not self._is_slow and give_up():
                return "nobody waited for its zygote any longer"
            self._is_slow = True
            return f"its zygote was not ready within {READY_SECONDS:g} s"

    def wake(self) -> None:
        """Have those who wait look whether they are to give up."""
        with self._changed:
            self._changed.notify_all()

    def open_task(self, on_exit: Callable[[ProcessExit], None], on_lost: Callable[[], None]) -> TaskProcesses:
        """Make room for one task's ranks, and wait until the first can begin; see `TaskProcesses` for the callbacks.

        `on_lost` is also called where it raises: for the room that came to nothing.

        Raises:
            Interrupted: it has died, or forks nothing.
        """
        try:
            processes = self._pool.open_task(on_exit, on_lost)
        except ConnectionError as error:
            raise Interrupted(_DIED) from error
        try:
            processes.wait_parked()
        except Interrupted as error:
            processes.close()
            raise Interrupted(_DIED) from error
        except OSError as error:
            processes.close()
            raise Interrupted(f"its zygote forks no process: {error.strerror}") from error
        return processes

    def close(self) -> None:
        """End it, with all that was forked from it."""
        with self._changed:
            self._is_closed = True
            connection = self._connection
        self._pool.hang_up()
        if connection is not None:
            connection.shutdown()

    # ---- event thread

    def _hear(self, connection: FrameSocket) -> None:
        messages = None
        with contextlib.suppress(OSError):
            messages = connection.receive(wait=False)
        if messages is None:
            self._lose(connection)
            return
        with self._changed:
            for message, _ in messages:
                if message["event"] == "ready":
                    self._is_ready = True
                    self.pid = message["pid"]
                elif message["event"] == "preload_refused":
                    self._refusal = f"its zygote can't be a parent of ranks: {message['why']}"
                    _log.warning("no rank is started warm here: %s", message["why"])
            self._changed.notify_all()

    def _lose(self, connection: FrameSocket) -> None:
        self._keeper.thread.remove(connection)
        self._pool.disconnect()
        connection.close()
        with self._changed:
            if self._refusal is None:
                self._gone = _DIED if self._is_ready else "its zygote ended before it was ready"
            self._connection = None
            self._is_ready = False
            self.pid = None
            self._changed.notify_all()
