"""What a worker is given and told, and what it says about its attempts; each function is one transaction's work."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpulayer.control import endings
from gpulayer.control.placing import place_queue
from gpulayer.control.store import attempts, jobs, logs, workers
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.rows import AttemptRow
from gpulayer.protocol import (
    AttemptRef,
    Failure,
    LogChunk,
    OutputFile,
    RankOutcome,
    StopOrder,
    TaskAssignment,
    TaskEnvironment,
    TaskId,
    WorkerId,
    WorkerOrders,
)
from gpulayer.states import AttemptState


def renew_and_read_orders(
    connection: StoreConnection, now: float, *, worker_id: WorkerId, boot: str, free: int, received: Sequence[AttemptRef]
) -> WorkerOrders:
    """Renew the lease, confirm what arrived, and read what the worker is to do.

    Orders to kill are added for attempts that ended before the worker confirmed them.

    Raises:
        UnknownWorker: it never registered.
        AttemptLost: the worker was started again since.
    """
    hear_worker(connection, now, worker_id=worker_id, boot=boot)
    late: list[StopOrder] = []
    for ref in received:
        row = attempts.find_attempt(connection, ref.task_id, ref.attempt)
        if row is None or not attempts.is_held_by(row, worker_id, boot) or AttemptState(row.state).is_terminal:
            # Whatever it was ordered while it lived: nothing that it still does counts, so it gets no grace.
            late.append(StopOrder(task_id=ref.task_id, attempt=ref.attempt, reason="kill"))
        else:
            endings.confirm_attempt(connection, now, row)
    orders = read_orders(connection, worker_id=worker_id, boot=boot, free=free)
    return msgspec.structs.replace(orders, stops=(*orders.stops, *late)) if late else orders


def read_orders(connection: StoreConnection, *, worker_id: WorkerId, boot: str, free: int) -> WorkerOrders:
    """What this worker has not confirmed, what it is to stop, and whether it is to take nothing more.

    Raises:
        UnknownWorker: it never registered.
        AttemptLost: the worker was started again since.
    """
    worker = workers.worker_row(connection, worker_id)
    if worker.boot == workers.LEFT:
        return WorkerOrders(drain=True)
    workers.check_boot(worker, boot)
    rows = attempts.live_attempts_of_worker(connection, worker_id)
    placed = [row for row in rows if row.state == AttemptState.PLACED.value and row.stop is None]
    return WorkerOrders(
        assignments=tuple(_assignment(connection, row) for row in placed[: max(free, 0)]),
        stops=tuple(
            StopOrder(task_id=attempts.task_id_of(row.job_id, row.node), attempt=row.attempt, reason=row.stop)
            for row in rows
            if row.stop is not None
        ),
        drain=worker.state == workers.DRAINING,
    )


def hear_worker(connection: StoreConnection, now: float, *, worker_id: WorkerId, boot: str) -> None:
    """Renew the lease; a worker that had fallen silent is given work again."""
    if workers.renew(connection, now, worker_id=worker_id, boot=boot):
        place_queue(connection, now)


def lost_of(connection: StoreConnection, *, worker_id: WorkerId, boot: str, running: Sequence[AttemptRef]) -> tuple[AttemptRef, ...]:
    """Of what the worker believes to run, the attempts that are over."""
    live = {
        (attempts.task_id_of(row.job_id, row.node), row.attempt)
        for row in attempts.live_attempts_of_worker(connection, worker_id)
        if row.boot == boot
    }
    return tuple(ref for ref in running if (ref.task_id, ref.attempt) not in live)


def report_failure(connection: StoreConnection, now: float, row: AttemptRow, failure: Failure) -> None:
    """A rank of this live attempt failed; its own agent ends it, the other nodes are ordered to stop."""
    endings.fail_job(connection, now, row, failure)
    place_queue(connection, now)  # nodes that had not confirmed their share are free at once


def finish_attempt(
    connection: StoreConnection,
    now: float,
    *,
    task_id: TaskId,
    attempt: int,
    worker_id: WorkerId,
    boot: str,
    state: AttemptState,
    ranks: Sequence[RankOutcome],
    failure: Failure | None,
    outputs: Sequence[OutputFile],
    chunks: Sequence[LogChunk] = (),
    since_start_seconds: float | None = None,
    environment: TaskEnvironment | None = None,
) -> None:
    """End an attempt as its worker says, with the last of its output; the same word again changes nothing.

    Raises:
        AttemptLost: it ended otherwise, or was never this worker's.
    """
    found = attempts.find_attempt(connection, task_id, attempt)
    if found is not None and attempts.is_held_by(found, worker_id, boot) and found.state == state.value:
        return
    row = attempts.check_fence(found, task_id=task_id, attempt=attempt, worker_id=worker_id, boot=boot)
    if since_start_seconds is not None and row.state != AttemptState.RUNNING.value:
        row = endings.start_attempt(connection, max(row.placed_at, now - max(since_start_seconds, 0.0)), row)
    if chunks:
        logs.append(connection, row, chunks)
    told = {} if environment is None else {"environment": msgspec.json.encode(environment)}
    ended = endings.end_attempt(connection, now, row, state, ranks=msgspec.json.encode(ranks), outputs=msgspec.json.encode(outputs), **told)
    if state is AttemptState.FAILED or (state is AttemptState.CANCELLED and row.stop is None):
        worker = workers.worker_row(connection, worker_id)
        endings.fail_job(connection, now, row, failure or _unexplained(row, worker.name, state))
    endings.settle_job(connection, now, row.job_id, ended)
    place_queue(connection, now)


def _assignment(connection: StoreConnection, row: AttemptRow) -> TaskAssignment:
    job = jobs.job_row(connection, row.job_id)
    assert job.accelerator is not None, "its placement fixed it at the latest"
    return TaskAssignment(
        task_id=attempts.task_id_of(row.job_id, row.node),
        attempt=row.attempt,
        job_id=row.job_id,
        node=row.node,
        nodes=job.nodes,
        devices=attempts.devices_of(row),
        accelerator=job.accelerator,
        spec=jobs.spec_of(job),
        source=job.source,
        inputs=jobs.inputs_of(job),
        requirements=job.requirements,
        is_as_node_0=row.node > 0 and job.source is not None and _is_as_node_0(connection, row),
    )


def _is_as_node_0(connection: StoreConnection, row: AttemptRow) -> bool:
    """Whether another node runs under the interpreter of node 0, on the same machine."""
    first = attempts.find_attempt(connection, attempts.task_id_of(row.job_id, 0), row.attempt)
    if first is None:
        return False
    own, other = (workers.worker_row(connection, worker_id) for worker_id in (row.worker_id, first.worker_id))
    return (own.boot_id, own.python) == (other.boot_id, other.python)


def _unexplained(row: AttemptRow, worker: str, state: AttemptState) -> Failure:
    if state is AttemptState.CANCELLED:
        return Failure(reason="orphaned", message=f"worker {worker!r} stopped its share unasked", node=row.node, worker=worker)
    return Failure(reason="rank", message=f"node {row.node} failed on worker {worker!r}", node=row.node, worker=worker)
