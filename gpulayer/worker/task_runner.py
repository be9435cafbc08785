"""One attempt from assignment to outcome, on a thread of its own in the agent.

Fetch, prepare, run, ship output, report. Processes are the runtime's matter; what is lost or to be stopped, the agent's.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpulayer.errors import AttemptLost, GPUlayerError, Interrupted, WrongEnvironment
from gpulayer.protocol import (
    AcquireNext,
    AttemptRef,
    Digest,
    Failure,
    FinishTask,
    OutputFile,
    RankOutcome,
    StopOrder,
    StopReason,
    Stream,
    TaskAssignment,
    TaskFinished,
    WorkerOrders,
)
from gpulayer.runtime.task_plan import Records, TaskPlan, TaskResult
from gpulayer.runtime.task_process import TaskProcess
from gpulayer.worker.attempt_calls import AttemptCalls
from gpulayer.worker.log_sender import REST_BYTES, LogSender
from gpulayer.worker.meeting import Meeting
from gpulayer.worker.outputs import LeftOut, OutputStore, find_outputs
from gpulayer.worker.preparation import TaskPreparation
from gpulayer.worker.record_senders import RecordSenders
from gpulayer.worker.task_place import TaskPlace
from gpulayer.worker.workspace import Workspace

DEVICE_SECONDS = 30.0
"""How long a device may still be held by an attempt that the control plane has given up and this worker is killing."""
LEAVE_FLUSH_SECONDS = 5.0
"""How long a worker that takes its leave goes on sending what its tasks have printed and logged."""

_log = logging.getLogger(__name__)


class TaskRunner:
    """Runs one assignment.

    Args:
        assignment: what to run.
        place: where.
        workspace: not yet created.
        ask_next: what the word of the end is to ask for besides.
        on_orders: told what that was answered with.
        on_ended: called from the runner's thread when nothing of the attempt is left.
    """

    def __init__(
        self,
        assignment: TaskAssignment,
        place: TaskPlace,
        workspace: Workspace,
        *,
        ask_next: Callable[[AttemptRef], AcquireNext | None],
        on_orders: Callable[[AcquireNext, WorkerOrders], None],
        on_ended: Callable[[TaskRunner], None],
    ) -> None:
        self.assignment = assignment
        self.ref = AttemptRef(task_id=assignment.task_id, attempt=assignment.attempt)
        self._place = place
        self._workspace = workspace
        self._ask_next = ask_next
        self._on_orders = on_orders
        self._on_ended = on_ended
        self._lock = threading.Lock()
        self._process: TaskProcess | None = None
        self._stopped = threading.Event()  # ends preparation: stop, lose or leave
        self._give_up = threading.Event()  # ends every wait for the control plane
        self._finished = False
        self._fault: Exception | None = None  # something on this machine that fails the attempt whatever its ranks do
        self._result: TaskResult | None = None
        self._outputs: OutputStore | None = None  # while the outputs are being stored
        self._end_storing = threading.Event()
        self._silent = False  # the outcome is nobody's business any more: lost, orphaned or leaving
        self._begun_at = time.monotonic()
        self._started_at: float | None = None  # monotonic
        self._sender: LogSender | None = None
        self._preparation: TaskPreparation | None = None
        self._thread = threading.Thread(target=self._run, name=f"gpulayer-task-{assignment.task_id}", daemon=True)
        self._calls = AttemptCalls(place.link, self._message_fields(), self._give_up)
        self._meeting = Meeting(self._calls)
        self._records = RecordSenders(
            self._calls, assignment, workspace.displays, on_lost=lambda error: self.lose(str(error)), tell=self._tell_in_log
        )

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end; False when it has not come within `timeout` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def stop(self, order: StopOrder) -> None:
        """Carry out an order of the control plane; the outcome is reported as ever."""
        with self._lock:
            storing = self._outputs is not None
        if storing:
            self._stop_storing()
        self._stop_process(order.reason)

    def lose(self, why: str) -> None:
        """The attempt is over as far as the control plane is concerned: kill its processes and report nothing more."""
        if self._finished:
            return  # a heartbeat that was under way when the control plane heard of the end
        if not self._silent:
            _log.warning("attempt %d of task %s is given up: %s", self.ref.attempt, self.ref.task_id, why)
        self._silent = True
        self._give_up_waiting()
        self._stop_process("kill")

    def leave(self) -> None:
        """The worker takes its leave: stop, send what was printed, and leave the outcome to the control plane."""
        self._silent = True
        self._stop_storing()
        self._stop_process("cancel")

    # ---- what the runtime tells (gpulayer.runtime.task_process.TaskEvents)

    def on_output(self, rank: int | None, stream: Stream, data: bytes) -> None:
        assert self._sender is not None
        self._sender.add(rank, stream, data)

    def on_records(self, rank: int, records: Records, lost: int) -> None:
        self._records.add(rank, records, lost)

    def on_started(self, at: float) -> None:
        self._started_at = at

    def on_lasting(self) -> None:
        assert self._sender is not None
        self._sender.start()

    def on_failure(self, failure: Failure) -> None:
        # Where there are siblings on other nodes they are stopped by this; on one node the finish says it soon enough.
        if self.assignment.nodes == 1 or self._silent:
            return
        self._calls.report_failure(self._placed(failure))

    def publish_rendezvous(self, address: str, port: int) -> None:
        self._meeting.publish(address, port)

    def read_rendezvous(self) -> tuple[str, int]:
        return self._meeting.read()

    # ---- the runner's thread

    def _run(self) -> None:
        try:
            with contextlib.ExitStack() as held:
                self._result = self._run_to_result(held)
            self._conclude(self._result)
        except Interrupted as error:
            _log.info("task %s: %s", self.ref.task_id, error)
        except GPUlayerError as error:
            self.lose(str(error))
        except Exception as error:  # noqa: BLE001 - the top of this thread: the job is told, it must not run for ever
            _log.exception("task %s: a fault in the worker", self.ref.task_id)
            self._report_fault(error)
        finally:
            self._abandon_senders()
            self._give_up.set()
            self._place.slots.release(self.ref)
            self._remove_workspace()
            self._on_ended(self)

    def _run_to_result(self, held: contextlib.ExitStack) -> TaskResult:
        """Run the task; whatever keeps it from running is its result, never silence. What it uses is in `held`."""
        try:
            self._place.slots.hold(self.assignment.devices, self.ref, wait_seconds=DEVICE_SECONDS, give_up=self._stopped)
            plan = self._prepare(held)
        except Interrupted:
            return TaskResult(state="cancelled", ranks=(), failure=None)
        except (GPUlayerError, OSError) as error:
            if self._stopped.is_set():
                return TaskResult(state="cancelled", ranks=(), failure=None)
            return self._not_started(error)
        with plan.meeting or contextlib.nullcontext():
            process = self._make_process(plan)
            return process.run() if process is not None else TaskResult(state="cancelled", ranks=(), failure=None)

    def _prepare(self, held: contextlib.ExitStack) -> TaskPlan:
        self._workspace.create()
        self._sender = LogSender(
            self._calls.append_logs,
            tell_start=self._tell_start,
            node=self.assignment.node,
            attempt=self.assignment.attempt,
            spool=self._workspace.path / "log-spool",
            on_lost=lambda error: self.lose(str(error)),
            on_fault=self._fail,
        )
        self._preparation = TaskPreparation(self.assignment, self._place, self._workspace, stopped=self._stopped, say=self._tell_in_log)
        return self._preparation.make_plan(self._meeting, held, begun_at=self._begun_at)

    def _make_process(self, plan: TaskPlan) -> TaskProcess | None:
        """None where an order to stop came first: there is nothing to be stopped."""
        process = TaskProcess(plan, self._place.keeper, self, self._place.zygote)
        with self._lock:
            if self._stopped.is_set():
                return None
            self._process = process
        return process

    def _conclude(self, result: TaskResult) -> None:
        """Store the files, send what is left of the output, then the outcome."""
        state, failure = result.state, self._placed(result.failure) if result.failure is not None else None
        try:
            if not self._silent and not self._store_outputs():
                state, failure = "cancelled", None
        except Interrupted:
            raise
        except GPUlayerError as error:
            if state == "succeeded":
                state = "failed"
                failure = self._placed(Failure(reason="launcher", message=f"The outputs could not be stored: {error}"))
            _log.error("task %s: the outputs could not be stored: %s", self.ref.task_id, error)
        # Given back before the control plane hears of the end: its next assignment may come at that moment.
        self._place.slots.release(self.ref)
        silent = self._silent
        # What ranks told first: what is missing of it is said in the output.
        leave_until = time.monotonic() + LEAVE_FLUSH_SECONDS
        self._records.close(LEAVE_FLUSH_SECONDS if silent else None)
        if self._sender is None:
            sent = True
        elif silent:
            sent = self._sender.close(max(0.0, leave_until - time.monotonic()))
        else:
            sent = self._sender.close(rest_bytes=REST_BYTES)
        if silent or self._silent:
            return
        if not sent and self._fault is None:
            raise Interrupted("The output of the attempt is not wanted any more.")
        if self._fault is not None and failure is None:
            state, failure = "failed", self._describe_fault(self._fault)
        self._finish(state, result.ranks, failure, self._outputs.stored if self._outputs is not None else ())

    def _store_outputs(self) -> bool:
        """Store what the job left in its output folder; False when it was to end before all was stored."""
        if self._sender is None:
            return True  # it ended before it had a folder
        left_out = LeftOut(self._tell_in_log)
        store = OutputStore(self._put_output, left_out)
        with self._lock:
            self._outputs = store
        if self._end_storing.is_set():
            return False
        whole = store.store(find_outputs(self._workspace.output, self._workspace.path, left_out))
        left_out.close()
        return whole

    def _put_output(self, file: Path, sha256: Digest) -> None:
        self._place.link.patiently(lambda: self._place.link.put_artifact(file, sha256), self._end_storing)

    def _finish(
        self,
        state: Literal["succeeded", "failed", "cancelled"],
        ranks: tuple[RankOutcome, ...],
        failure: Failure | None,
        outputs: tuple[OutputFile, ...],
    ) -> None:
        chunks = self._sender.rest if self._sender is not None else ()
        since = None if self._started_at is None else time.monotonic() - self._started_at
        request = FinishTask(
            state=state,
            ranks=ranks,
            failure=failure,
            outputs=outputs,
            chunks=chunks,
            since_start_seconds=since,
            acquire=self._ask_next(self.ref),
            environment=self._preparation.environment if self._preparation is not None else None,
            **self._message_fields(),
        )
        try:
            answer: TaskFinished = self._calls.call("finish_task", request)
        except (AttemptLost, Interrupted):
            raise
        except GPUlayerError as refused:
            # Whatever the control plane does not like about it: without any end the job would run for ever.
            _log.error("task %s: its outcome was refused: %s", self.ref.task_id, refused)
            # The output is not to go with it: each call may be refused for reasons of its own.
            self._calls.append_rest(chunks)
            message = f"The task ended as {state}, and the control plane refused that: {refused}"
            bare = FinishTask(state="failed", failure=self._placed(Failure(reason="launcher", message=message)), **self._message_fields())
            answer = self._calls.call("finish_task", bare)
        self._finished = True
        if request.acquire is not None and answer.orders is not None:
            self._on_orders(request.acquire, answer.orders)

    # ---- other threads

    def _tell_start(self) -> None:
        try:
            self._calls.start()
        except Interrupted as error:
            _log.info("task %s: %s", self.ref.task_id, error)
        except GPUlayerError as error:
            self.lose(str(error))
        except Exception as error:  # noqa: BLE001 - the top of this thread: the attempt would run on unannounced
            _log.exception("task %s: its start could not be told", self.ref.task_id)
            self._fail(error)

    # ---- small parts

    def _tell_in_log(self, text: str) -> None:
        """A line of the worker's own in the job's output."""
        self.on_output(None, "stderr", f"{text}\n".encode())

    def _abandon_senders(self) -> None:
        self._records.abandon()
        if self._sender is not None:
            self._sender.abandon()

    def _stop_process(self, reason: StopReason) -> None:
        with self._lock:
            self._stopped.set()
            process = self._process
        self._place.wake()
        if process is not None:
            process.stop(reason)

    def _stop_storing(self) -> None:
        with self._lock:
            store = self._outputs
        if store is not None:
            store.stop()  # first: what the event makes of the uploads is no failure then
        self._end_storing.set()

    def _fail(self, error: Exception) -> None:
        """End the attempt as failed; its end is reported as ever."""
        self._fault = self._fault or error
        self._stop_process("kill")

    def _describe_fault(self, error: Exception) -> Failure:
        return self._placed(Failure(reason="launcher", message=f"A fault on the worker: {type(error).__name__}: {error}"))

    def _give_up_waiting(self) -> None:
        self._give_up.set()
        self._abandon_senders()
        self._stop_storing()
        self._place.wake()

    def _not_started(self, error: GPUlayerError | OSError) -> TaskResult:
        failure = Failure(reason="start", message=str(error), lasting=isinstance(error, WrongEnvironment))
        return TaskResult(state="failed", ranks=(), failure=self._placed(failure))

    def _placed(self, failure: Failure) -> Failure:
        return msgspec.structs.replace(failure, node=self.assignment.node, worker=self._place.name)

    def _report_fault(self, error: Exception) -> None:
        """Last words of a runner that met a fault of its own: the job must not stay running for ever."""
        self._stop_process("kill")
        try:
            self._finish("failed", self._result.ranks if self._result is not None else (), self._describe_fault(error), ())
        except GPUlayerError as refused:
            _log.warning("task %s: the fault could not be reported: %s", self.ref.task_id, refused)

    def _remove_workspace(self) -> None:
        try:
            self._workspace.remove()
        except OSError as error:
            _log.warning("a workspace could not be removed: %s", error)

    def _message_fields(self) -> dict[str, Any]:
        return {
            "task_id": self.ref.task_id,
            "attempt": self.ref.attempt,
            "worker_id": self._place.worker_id,
            "boot": self._place.boot,
        }
