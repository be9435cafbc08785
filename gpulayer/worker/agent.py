"""The agent of one worker: joins a control plane, takes assignments, runs them, and takes its leave.

Threads of a worker process, or of the process that embeds the control plane. It never imports torch.
"""

from __future__ import annotations

import contextlib
import logging
import platform
import threading
import time
import uuid
from collections.abc import Callable

from gpulayer import settings
from gpulayer._version import __version__
from gpulayer.client.held_calls import pause_after
from gpulayer.client.transport import Transport
from gpulayer.errors import GPUlayerError, Interrupted
from gpulayer.hardware.inventory import find_devices, find_frameworks, host_boot_id
from gpulayer.protocol import (
    PROTOCOL_VERSION,
    AcquireNext,
    AcquireTask,
    AttemptRef,
    Device,
    FinishTask,
    Heartbeat,
    HeartbeatReply,
    LeaveWorker,
    Registered,
    RegisterWorker,
    StopOrder,
    WorkerId,
    WorkerOrders,
)
from gpulayer.runtime.process import Keeper
from gpulayer.worker.address import address_towards
from gpulayer.worker.artifact_cache import ArtifactCache
from gpulayer.worker.config import WorkerConfig
from gpulayer.worker.heartbeat import HeartbeatLoop
from gpulayer.worker.job_environments import JobEnvironments
from gpulayer.worker.launching import make_zygote
from gpulayer.worker.seen import SeenAttempts
from gpulayer.worker.server_link import PASSING, Retries, ServerLink
from gpulayer.worker.slots import Slots, own_devices
from gpulayer.worker.task_place import TaskPlace
from gpulayer.worker.task_runner import LEAVE_FLUSH_SECONDS, TaskRunner
from gpulayer.worker.workspace import WorkspaceRoot

LEAVE_SECONDS = 5.0
"""How long the word of leave may take; without it the lease runs out instead."""

MOST_SPARES = 4
"""How many interpreters wait, parked, for the next tasks: each is some MB, and one that is used is replaced at once."""

_log = logging.getLogger(__name__)


class Agent:
    """One worker.

    Args:
        transport: to the control plane it joins; becomes the worker's own by registering.
        config: what it offers.
        rediscover: finds the home's next server when that one is gone.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        transport: Transport,
        config: WorkerConfig,
        *,
        rediscover: Callable[[], Transport | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._clock = clock
        self._link = ServerLink(transport, rediscover, clock=clock)
        self._boot = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._runners: dict[AttemptRef, TaskRunner] = {}
        self._seen = SeenAttempts()
        self._received: set[AttemptRef] = set()
        self._orders: set[StopOrder] = set()
        self._draining = False
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._started = False
        self._registered: Registered | None = None
        self._place: TaskPlace | None = None
        self._workspaces: WorkspaceRoot | None = None
        self._heartbeat: HeartbeatLoop | None = None

    @property
    def worker_id(self) -> WorkerId | None:
        """None until it has registered."""
        return self._registered.worker_id if self._registered is not None else None

    def run(self) -> None:
        """Work until drained, stopped, or refused. Call it once; blocks.

        Raises:
            ProtocolMismatch: this worker and the control plane speak versions that don't work together.
            NotAuthenticated: its token is not, or no longer, good.
            GPUlayerError: another refusal of the worker itself.
        """
        with self._lock:
            self._started = True
        try:
            if self._stopping.is_set():
                return
            self.register()
            self._acquire_until_done()
        except Interrupted:
            if not self._stopping.is_set():
                raise
        finally:
            self._end()

    def register(self) -> WorkerId:
        """Join the control plane, waiting for it where it is away; done by `run` as well."""
        if self._registered is not None:
            return self._registered.worker_id
        config = self._config
        devices = own_devices(find_devices(cpu_devices=config.cpu_device_count(), simulate=config.simulate), self._boot)
        address = config.address or address_towards(getattr(self._link.transport, "url", None))
        request = RegisterWorker(
            boot=self._boot,
            protocol=PROTOCOL_VERSION,
            version=__version__,
            name=config.name,
            host=platform.node(),
            boot_id=host_boot_id(),
            address=address,
            python=config.python,
            devices=devices,
            frameworks=find_frameworks(config.python),
            local=config.local,
        )
        self._registered = self._link.patiently(lambda: self._link.call("register_worker", request), self._stopping)
        self._prepare(devices, address)
        _log.info("worker %r is %s, with %d devices", config.name, self._registered.worker_id, len(devices))
        return self._registered.worker_id

    def stop(self) -> None:
        """Take leave: stop what runs, send its output, say goodbye. Thread-safe; blocks until the agent has ended."""
        self._stopping.set()
        self._link.wake()
        with self._lock:
            runners = list(self._runners.values())
            started = self._started
        for runner in runners:
            runner.leave()
        for runner in runners:
            if not runner.join(runner.assignment.spec.grace_seconds + LEAVE_FLUSH_SECONDS):
                runner.lose("it did not end in its grace")
                runner.join(LEAVE_SECONDS)
        self._say_goodbye()
        if started:
            self._ended.wait(LEAVE_SECONDS)
        self._link.close()
        if started:
            self._ended.wait()

    # ---- the acquire loop

    def _acquire_until_done(self) -> None:
        retries = Retries()
        while not self._stopping.is_set() and not (self._draining and self._is_idle()):
            asked_at = self._clock()
            request = self._next_request()
            try:
                orders = self._acquire(request)
            except PASSING as error:
                if self._is_orphaned(error):
                    return
                self._link.wait_for_server(retries.next_pause(error), self._stopping)
                continue
            except GPUlayerError as error:
                if self._stopping.is_set():
                    return
                self._lose_all(str(error))
                raise
            retries = Retries()
            if not self._follow(orders):
                # Nothing that is not under way already: as good as an empty answer.
                self._stopping.wait(pause_after(request, WorkerOrders(), self._clock() - asked_at))

    def _next_request(self) -> AcquireTask:
        assert self._registered is not None
        assert self._place is not None
        with self._lock:
            received, known = tuple(self._received), tuple(self._orders)
        return AcquireTask(
            worker_id=self._registered.worker_id,
            boot=self._boot,
            # Which devices are free is the control plane's to count: it learns of an end before this call could say so.
            free=0 if self._draining else self._place.slots.capacity,
            received=received,
            known_orders=known,
            wait=settings.LONG_POLL_SECONDS,
        )

    def _acquire(self, request: AcquireTask) -> WorkerOrders:
        orders: WorkerOrders = self._link.call("acquire_task", request)
        with self._lock:
            self._received.difference_update(request.received)
        return orders

    def _follow(self, orders: WorkerOrders) -> bool:
        """Do as told; False when there was nothing that is not already under way."""
        assert self._place is not None
        assert self._workspaces is not None
        fresh: list[TaskRunner] = []
        news = orders.drain and not self._draining
        self._draining = self._draining or orders.drain
        with self._lock:
            for assignment in orders.assignments:
                ref = AttemptRef(task_id=assignment.task_id, attempt=assignment.attempt)
                self._received.add(ref)
                # Repeated because the answer that carried it first was cut, or this one crossed with its receipt.
                if not self._stopping.is_set() and self._seen.add(ref):
                    workspace = self._workspaces.workspace(f"{ref.task_id}-{ref.attempt}")
                    fresh.append(
                        TaskRunner(
                            assignment,
                            self._place,
                            workspace,
                            ask_next=self._ask_next,
                            on_orders=self._follow_answer,
                            on_ended=self._task_ended,
                        )
                    )
                    self._runners[ref] = fresh[-1]
            orders_to_do = [order for order in orders.stops if order not in self._orders]
            # An order is known for as long as its attempt runs here or the control plane repeats it.
            self._orders = {order for order in self._orders if _ref(order) in self._runners or order in orders.stops}
            self._orders.update(orders_to_do)
            told = [(self._runners.get(_ref(order)), order) for order in orders_to_do]
        for runner in fresh:
            runner.start()
        answered = True
        for known, order in told:
            if known is not None:
                known.stop(order)
            else:
                answered = self._disown(order) and answered
        if fresh and self._heartbeat is not None:
            self._heartbeat.work_changed()
        return bool(news or fresh or (orders_to_do and answered))

    def _ask_next(self, ended: AttemptRef) -> AcquireNext:
        """What the word of an attempt's end asks for besides: the next assignment, as the held acquire does."""
        assert self._place is not None
        with self._lock:
            self._received.discard(ended)  # its end confirms it
            return AcquireNext(free=0 if self._draining else self._place.slots.capacity, received=tuple(self._received))

    def _follow_answer(self, request: AcquireNext, orders: WorkerOrders) -> None:
        with self._lock:
            self._received.difference_update(request.received)
        self._follow(orders)

    def _task_ended(self, runner: TaskRunner) -> None:
        with self._lock:
            self._runners.pop(runner.ref, None)
            self._orders = {order for order in self._orders if _ref(order) != runner.ref}
        if self._heartbeat is not None:
            self._heartbeat.work_changed()
        if self._draining and self._is_idle():
            # The held acquire has nothing more to wait for.
            self._say_goodbye()
            self._stopping.set()
            self._link.close()

    def _disown(self, order: StopOrder) -> bool:
        """Nothing of this attempt runs here: say so, or its job would wait for its end. False when nobody heard it."""
        assert self._registered is not None
        request = FinishTask(
            task_id=order.task_id, attempt=order.attempt, worker_id=self._registered.worker_id, boot=self._boot, state="cancelled"
        )
        try:
            self._link.call("finish_task", request)
        except PASSING as error:
            _log.info("an order to stop what does not run here is answered with the next acquire: %s", error)
            with self._lock:
                self._orders.discard(order)  # what this worker doesn't know, the control plane repeats
            return False
        except GPUlayerError as error:
            _log.info("an order to stop what does not run here: %s", error)
        return True

    def _is_idle(self) -> bool:
        with self._lock:
            return not self._runners

    # ---- bad news

    def _is_orphaned(self, error: GPUlayerError) -> bool:
        """Whether a worker that nobody answers has waited long enough to end."""
        self._check_orphan_limit()
        if not self._config.local or not self._is_idle() or self._link.silent_seconds() < settings.LOCAL_WORKER_IDLE_SECONDS:
            return False
        _log.warning("a local worker without work and without a server ends: %s", error)
        return True

    def _check_orphan_limit(self) -> None:
        if self._link.silent_seconds() >= settings.ORPHAN_LIMIT_SECONDS:
            self._lose_all(f"no control plane has answered for {settings.ORPHAN_LIMIT_SECONDS:g} s")

    def _lose(self, ref: AttemptRef) -> None:
        with self._lock:
            runner = self._runners.get(ref)
        if runner is not None:
            runner.lose("the control plane calls it lost")

    def _lose_all(self, why: str) -> None:
        with self._lock:
            runners = list(self._runners.values())
        for runner in runners:
            runner.lose(why)

    # ---- begin and end

    def _prepare(self, devices: tuple[Device, ...], address: str) -> None:
        assert self._registered is not None
        config = self._config
        config.work_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._workspaces = WorkspaceRoot(config.work_dir / "workspaces", self._boot)
        environment = settings.inherited_environment() if config.environment is None else config.environment
        keeper = Keeper.start(config.python, spares=min(len(devices), MOST_SPARES))
        self._place = TaskPlace(
            worker_id=self._registered.worker_id,
            boot=self._boot,
            name=config.name,
            address=address,
            python=config.python,
            environment=environment,
            link=self._link,
            cache=ArtifactCache(config.work_dir / "artifacts", self._link.get_artifact),
            environments=JobEnvironments.of(config.python, environment, config.work_dir / "environments"),
            keeper=keeper,
            zygote=make_zygote(keeper, warm=config.warm, preload=config.preload, devices=len(devices)),
            slots=Slots(devices),
            start=config.start,
        )
        self._heartbeat = HeartbeatLoop(
            beat=self._beat,
            running=self._running,
            on_lost=self._lose,
            on_refused=lambda error: self._lose_all(str(error)),
            on_silence=self._check_orphan_limit,
            every_seconds=self._registered.heartbeat_seconds,
        )
        self._heartbeat.start()

    def _beat(self, running: tuple[AttemptRef, ...]) -> HeartbeatReply:
        assert self._registered is not None
        request = Heartbeat(worker_id=self._registered.worker_id, boot=self._boot, running=running)
        reply: HeartbeatReply = self._link.call("heartbeat", request)
        return reply

    def _running(self) -> tuple[AttemptRef, ...]:
        with self._lock:
            return tuple(self._runners)

    def _say_goodbye(self) -> None:
        if self._registered is None:
            return
        request = LeaveWorker(worker_id=self._registered.worker_id, boot=self._boot)
        # Nobody hears it: then the lease runs out.
        with contextlib.suppress(GPUlayerError):
            self._link.call("leave_worker", request, timeout=LEAVE_SECONDS)

    def _end(self) -> None:
        if not self._stopping.is_set():
            # Drained, orphaned or refused; a stop says its goodbye itself, once its tasks have ended.
            self._lose_all("the worker ends")
            self._say_goodbye()
        with self._lock:
            runners = list(self._runners.values())
        try:
            for runner in runners:
                runner.join()
            if self._heartbeat is not None:
                self._heartbeat.stop()
            if self._place is not None:
                self._place.close()
            if self._workspaces is not None:
                self._workspaces.close()
        finally:
            self._ended.set()


def _ref(order: StopOrder) -> AttemptRef:
    return AttemptRef(task_id=order.task_id, attempt=order.attempt)
