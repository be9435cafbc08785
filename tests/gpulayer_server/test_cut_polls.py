"""A worker's poll is cut at every place where it can be, on its way to a real server, and no assignment is lost."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from support.cutting_proxy import CuttingProxy, Spoil, cutting_proxy, gateway
from support.server import RunningServer, running_server

import gpulayer
from gpulayer.calls import CALLS
from gpulayer.client.http_transport import HttpTransport
from gpulayer.errors import ServerUnreachable
from gpulayer.protocol import AcquireTask, AttemptRef, Device, FinishTask, RegisterWorker, StartTask, TaskAssignment, WorkerOrders
from gpulayer.states import JobState

pytestmark = pytest.mark.e2e

ACQUIRE = b"/worker/acquire"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("cut") / "home") as server:
        yield server


@dataclass
class Worker:
    """A worker's calls, through the proxy."""

    transport: HttpTransport
    who: dict[str, Any]

    def acquire(self, *received: TaskAssignment, free: int = 1, wait: float = 30.0, timeout: float | None = None) -> WorkerOrders:
        refs = tuple(AttemptRef(task_id=one.task_id, attempt=one.attempt) for one in received)
        request = AcquireTask(**self.who, free=free, wait=wait, received=refs)
        orders: WorkerOrders = self.transport.call(CALLS["acquire_task"], request, timeout=timeout)
        return orders

    def run(self, assignment: TaskAssignment) -> None:
        """Acknowledge it and say that it ran."""
        of_task = {"task_id": assignment.task_id, "attempt": assignment.attempt, **self.who}
        self.acquire(assignment, free=0, wait=0.0)
        self.transport.call(CALLS["start_task"], StartTask(**of_task))
        self.transport.call(CALLS["finish_task"], FinishTask(**of_task, state="succeeded"))


@dataclass
class Setting:
    client: gpulayer.Client
    proxy: CuttingProxy
    worker: Worker

    def submit_and_acquire(self, *, held: bool) -> tuple[gpulayer.Job, list[TaskAssignment]]:
        """One job, and what one acquire brings: an acquire that the server holds when the job comes, or a later one."""
        orders: list[WorkerOrders] = []
        thread = threading.Thread(target=lambda: orders.append(self.worker.acquire()))
        if held:
            thread.start()
            assert self.proxy.forwarded.acquire(timeout=10)
        job = self.client.submit(gpulayer.CommandJob(["true"]))
        if not held:
            thread.start()
        thread.join(20)
        assert not thread.is_alive()
        return job, [one for each in orders for one in each.assignments]

    def end_well(self, job: gpulayer.Job, assignments: list[TaskAssignment]) -> None:
        (assignment,) = assignments
        assert (assignment.job_id, assignment.attempt) == (job.id, 1)
        self.worker.run(assignment)
        assert job.wait(timeout=20).state is JobState.SUCCEEDED


@pytest.fixture
def setting(server: RunningServer) -> Iterator[Setting]:
    port = int(server.url.rstrip("/").rpartition(":")[2])
    with gpulayer.connect(server.url, token=server.client_token) as client, cutting_proxy(port) as (proxy, listens):
        transport = HttpTransport(listens.url, client.create_join_token().token)
        register = RegisterWorker(
            boot="boot",
            protocol=1,
            version="0",
            name="cut",
            host="host",
            boot_id="x",
            address="127.0.0.1",
            python="3",
            devices=(Device(id="cpu:0", accelerator="cpu", index=0),),
            frameworks={},
        )
        worker_id = transport.call(CALLS["register_worker"], register).worker_id
        while proxy.forwarded.acquire(blocking=False):
            pass
        yield Setting(client, proxy, Worker(transport, {"worker_id": worker_id, "boot": "boot"}))
        client.drain_worker(worker_id)
        transport.close()


def _in_body(answer: bytes) -> int:
    start = answer.index(b"\r\n\r\n") + 4
    return start + (len(answer) - start) // 2


STAGES = {
    "before the head": lambda answer: 0,
    "in the first line": lambda answer: 10,
    "in the middle of the head": lambda answer: answer.index(b"\r\n\r\n") // 2,
    "between head and body": lambda answer: answer.index(b"\r\n\r\n") + 4,
    "in the body": _in_body,
    "before the last byte": lambda answer: len(answer) - 1,
}


@pytest.mark.parametrize("held", [True, False], ids=["held", "at once"])
@pytest.mark.parametrize("then", ["reset", "close"])
@pytest.mark.parametrize("stage", STAGES)
def test_an_answer_that_is_cut_comes_again(setting: Setting, stage: str, then: str, held: bool) -> None:
    setting.proxy.spoil_next(ACQUIRE, Spoil(STAGES[stage], then))
    job, assignments = setting.submit_and_acquire(held=held)
    assert setting.proxy.spoilt.acquire(timeout=10)
    setting.end_well(job, assignments)


def test_a_connection_that_is_cut_after_its_answer_is_replaced_by_the_next_acquire(setting: Setting) -> None:
    setting.proxy.spoil_next(ACQUIRE, Spoil(len, "reset"))
    job, assignments = setting.submit_and_acquire(held=True)
    assert setting.proxy.spoilt.acquire(timeout=10)
    setting.end_well(job, assignments)


def test_an_answer_whose_reader_forgot_it_comes_again_until_it_is_acknowledged(setting: Setting) -> None:
    job, first = setting.submit_and_acquire(held=True)
    for _ in range(3):
        assert setting.worker.acquire(wait=0.0).assignments == tuple(first)
    setting.end_well(job, first)
    assert setting.worker.acquire(wait=0.0).assignments == ()


@pytest.mark.parametrize(
    "spoil",
    [Spoil(then="reset"), Spoil(then="close"), gateway("502 Bad Gateway"), gateway("504 Gateway Timeout")],
    ids=["reset", "close", "502", "504"],
)
def test_an_idle_poll_that_a_proxy_ends_is_asked_again(setting: Setting, spoil: Spoil) -> None:
    setting.proxy.spoil_next(ACQUIRE, spoil)
    orders: list[WorkerOrders] = []
    thread = threading.Thread(target=lambda: orders.append(setting.worker.acquire()))
    thread.start()
    for _ in range(2):  # the one that is ended, and the one after it
        assert setting.proxy.forwarded.acquire(timeout=10)
    job = setting.client.submit(gpulayer.CommandJob(["true"]))
    thread.join(20)
    setting.end_well(job, list(orders[0].assignments))


def test_a_poll_that_is_swallowed_in_silence_costs_its_deadline_and_no_job(setting: Setting) -> None:
    """The server goes on holding what was swallowed: what it answers there must come again on the next poll."""
    setting.proxy.spoil_next(ACQUIRE, Spoil(then="silence"))
    with pytest.raises(ServerUnreachable, match="No answer came in time"):
        setting.worker.acquire(timeout=0.1)
    while setting.proxy.forwarded.acquire(blocking=False):
        pass
    job, assignments = setting.submit_and_acquire(held=True)
    setting.end_well(job, assignments)


@pytest.mark.parametrize("what", [b"/start", b"/finish"])
def test_what_a_worker_says_twice_because_its_answer_was_cut_counts_once(setting: Setting, what: bytes) -> None:
    job, assignments = setting.submit_and_acquire(held=True)
    setting.proxy.spoil_next(what, Spoil(STAGES["in the body"]))
    setting.end_well(job, assignments)
    assert setting.proxy.spoilt.acquire(timeout=10)
    assert job.status.attempt == 1
