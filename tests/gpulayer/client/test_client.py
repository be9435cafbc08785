from __future__ import annotations

import sys
import threading

import pytest
from support.client import Answer, chunk, free_port, health, job_status, scripted_server

import gpulayer.client.client as client_module
from gpulayer import CommandJob, DistributedJob
from gpulayer.client.client import Client, most_cpu_ranks
from gpulayer.client.http_transport import HttpTransport
from gpulayer.client.job import Job
from gpulayer.errors import InvalidSpec, NotAuthenticated, ServerUnreachable, TooManyCalls, encode_error
from gpulayer.protocol import Device, JobList, LogPage, WorkerList, WorkerStatus
from gpulayer.states import JobState


def test_a_script_without_a_source_folder_travels_with_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/train.py").write_text("pass")
    (tmp_path / "sub/part.py").write_text("pass")
    spec, bundle = client_module._collect(DistributedJob(script="sub/train.py"))
    assert spec.script == "train.py"
    assert sorted(bundle.files) == ["part.py", "train.py"]
    spec, bundle = client_module._collect(DistributedJob(script="sub/train.py", source=str(tmp_path)))
    assert spec.script == "sub/train.py"
    assert "sub/part.py" in bundle.files
    assert client_module._collect(CommandJob(["true"]))[1] is None


@pytest.mark.parametrize(
    "spec",
    [
        DistributedJob(script="missing.py"),
        DistributedJob(script="train.py", source="no/such/folder"),
        CommandJob(["true"], source="no/such/folder"),
    ],
)
def test_a_source_that_is_not_there_is_named_before_anything_is_sent(tmp_path, monkeypatch, spec):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidSpec):
        client_module._collect(spec)


def test_a_job_of_another_type_is_refused():
    with pytest.raises(InvalidSpec):
        Client(HttpTransport(f"http://127.0.0.1:{free_port()}/", None)).submit({"argv": ["true"]})


def test_listing_reads_page_after_page():
    def answer(request):
        page = int(request.query.get("before", 0))
        return Answer(body=JobList(jobs=(job_status(name=f"n{page}"),), next=str(page + 1)))

    with scripted_server(answer) as server, Client(HttpTransport(server.url, "t")) as client:
        assert [job.name for job in client.jobs(limit=3)] == ["n0", "n1", "n2"]


def test_ensure_local_workers_counts_only_local_ones_that_are_alive():
    with scripted_server(lambda request: Answer(body=WorkerList(workers=()))) as server, Client(HttpTransport(server.url, "t")) as client:
        assert client.ensure_local_workers(2, cpu_devices=3, python="/py", simulate_devices="cuda:1") == []
        started = [request.json() for request in server.requests if request.path.endswith("/local")]
        assert started == [{"count": 2, "python": "/py", "cpu_devices": 3, "simulate_devices": "cuda:1", "job_id": None}]
        with pytest.raises(InvalidSpec):
            client.ensure_local_workers(0)


def test_workers_are_started_for_a_job_only_on_this_machine_and_where_none_is_alive():
    with scripted_server(lambda request: Answer(body=WorkerList(workers=()))) as server:
        with Client(HttpTransport(server.url, "t")) as far:
            assert far.start_workers_for(CommandJob(["true"])) == []
            assert server.requests == []
        with Client(HttpTransport(server.url, "t"), is_local=True) as near:
            near.start_workers_for(DistributedJob(script="x.py", nodes=2, devices=4))
        (started,) = [request.json() for request in server.requests if request.path.endswith("/local")]
        assert (started["count"], started["cpu_devices"]) == (2, 4)


def worker_status(name: str = "w", *, cpu: int = 1, cuda: int = 0, **fields) -> WorkerStatus:
    kinds = ["cpu"] * cpu + ["cuda"] * cuda
    devices = tuple(Device(id=f"{kind}:{index}", accelerator=kind, index=index) for index, kind in enumerate(kinds))
    known = {"state": "alive", "local": True, "devices": devices, "devices_held": {}, "frameworks": {"torch": "2"}, "python": "/py"}
    known |= {"worker_id": name, "name": name, "host": "h", "version": "0", "registered_at": 1.0, "last_seen_at": 1.0}
    return WorkerStatus(**{**known, **fields})


TWO_NODES = DistributedJob(script="x.py", nodes=2, devices=2)


@pytest.mark.parametrize(
    ("spec", "workers", "missing"),
    [
        (TWO_NODES, [], 2),
        (TWO_NODES, [worker_status(cpu=1)], 2),
        (TWO_NODES, [worker_status(cpu=2)], 1),
        (TWO_NODES, [worker_status(cpu=2), worker_status(cpu=3, devices_held={"cpu:0": "j"})], 0),
        # It may be one of a process that was killed a moment ago.
        (TWO_NODES, [worker_status(cpu=2, local=False), worker_status(cpu=2)], 1),
        (TWO_NODES, [worker_status(cpu=2, state="draining"), worker_status(cpu=2, state="gone")], 2),
        # One worker of a machine offers its accelerators; a second one could not.
        (TWO_NODES, [worker_status(cpu=1, cuda=1)], 0),
        (DistributedJob(script="x.py", devices=2, accelerator="cuda"), [worker_status(cpu=2)], 0),
        # Another interpreter may have what is required; this one again would not.
        (CommandJob(["true"], requires=["jax"]), [worker_status()], 1),
        (CommandJob(["true"], requires=["jax"]), [worker_status(python=sys.executable)], 0),
        (CommandJob(["true"], requires=["torch"]), [worker_status()], 0),
    ],
)
def test_an_embedded_control_plane_starts_what_a_job_lacks(spec, workers, missing):
    client = Client(HttpTransport(f"http://127.0.0.1:{free_port()}/", "t"), is_embedded=True)
    assert client.missing_workers(spec, workers) == missing


@pytest.mark.parametrize(
    ("devices", "workers", "missing"),
    [
        (2, [worker_status(state="gone")], 2),
        (2, [worker_status(cpu=1)], 2),
        (2, [worker_status(cpu=2)], 1),
        # Whoever added a worker of their own decides about others.
        (2, [worker_status(cpu=1, local=False)], 0),
        (most_cpu_ranks() + 1, [], 2),
        (most_cpu_ranks() + 1, [worker_status(cpu=1)], 0),
    ],
)
def test_a_server_on_this_machine_starts_what_its_local_workers_lack(devices, workers, missing):
    client = Client(HttpTransport(f"http://127.0.0.1:{free_port()}/", "t"), is_local=True)
    assert client.missing_workers(DistributedJob(script="x.py", nodes=2, devices=devices), workers) == missing


# ---- through a restart


@pytest.fixture
def quick_retries(monkeypatch):
    monkeypatch.setattr(client_module, "FIRST_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(client_module, "LONGEST_RETRY_SECONDS", 0.001)


def test_waiting_goes_on_where_the_server_comes_back_elsewhere(quick_retries):
    gone = HttpTransport(f"http://127.0.0.1:{free_port()}/", "old")
    asked = []
    with scripted_server(lambda request: Answer(body=job_status(JobState.SUCCEEDED))) as server:

        def rediscover():
            asked.append(None)
            return HttpTransport(server.url, "new") if len(asked) == 3 else None

        with Client(gone, rediscover=rediscover) as client:
            assert Job(client, job_status(JobState.RUNNING)).wait().state is JobState.SUCCEEDED
    assert len(asked) == 3
    assert server.requests[0].headers["authorization"] == "Bearer new"


def test_a_log_is_read_on_from_its_cursor_after_a_cut(quick_retries):
    pages = iter(
        [
            Answer(body=LogPage(chunks=(chunk(b"one\ntw", sequence=1),), next=1, complete=False)),
            Answer(status=503, body=b"restarting"),
            Answer(status=503, body=b"restarting"),
            Answer(body=LogPage(chunks=(chunk(b"o\n", sequence=2, offset=6, first_line=1),), next=2, complete=True)),
        ]
    )
    with scripted_server(lambda request: next(pages)) as server, Client(HttpTransport(server.url, "t")) as client:
        assert [line.text for line in Job(client, job_status()).follow_logs()] == ["one", "two"]
    assert [request.query["after"] for request in server.requests] == ["0", "1", "1", "1"]


def test_patience_has_an_end(quick_retries, monkeypatch):
    monkeypatch.setattr(client_module, "PATIENCE_SECONDS", 0.02)
    with Client(HttpTransport(f"http://127.0.0.1:{free_port()}/", "t")) as client, pytest.raises(ServerUnreachable):
        Job(client, job_status()).wait()


def test_a_token_that_the_next_server_does_not_know_is_replaced_by_its_own(quick_retries):
    def answer(request):
        if request.headers["authorization"] != "Bearer new":
            return Answer(status=401, body=encode_error(NotAuthenticated("Who?")))
        return Answer(body=job_status(JobState.SUCCEEDED))

    with scripted_server(answer) as server:
        with Client(HttpTransport(server.url, "old"), rediscover=lambda: HttpTransport(server.url, "new")) as client:
            assert Job(client, job_status()).wait().state is JobState.SUCCEEDED
        with Client(HttpTransport(server.url, "old")) as client, pytest.raises(NotAuthenticated):
            Job(client, job_status()).wait()


def test_too_many_calls_are_waited_out_as_long_as_the_server_says():
    asked, pauses = [], []

    def answer(request):
        asked.append(request)
        if len(asked) == 1:
            return Answer(status=429, body=encode_error(TooManyCalls("Too many.")), headers={"Retry-After": "7"})
        return Answer(body=job_status(JobState.SUCCEEDED))

    def never() -> None:
        raise AssertionError("the server is there")

    with scripted_server(answer) as server, Client(HttpTransport(server.url, "t"), rediscover=never) as client:
        client._closing.wait = pauses.append  # the pause itself, without the waiting
        assert Job(client, job_status()).wait().state is JobState.SUCCEEDED
        del client._closing.wait
    assert pauses == [7.0]


def test_a_server_that_is_found_where_it_was_keeps_its_connections(quick_retries):
    with scripted_server(lambda request: answers.pop(0)) as server:
        answers = [Answer(status=503, body=b"restarting")] * 4 + [Answer(body=job_status(JobState.SUCCEEDED))]
        way = HttpTransport(server.url, "t")
        with Client(way, rediscover=lambda: HttpTransport(server.url, "t")) as client:
            assert Job(client, job_status()).wait().state is JobState.SUCCEEDED
            assert client.transport is way


def test_follow_raises_what_ended_it():
    with (
        scripted_server(lambda request: Answer(status=401, body=encode_error(NotAuthenticated("Who?")))) as server,
        Client(HttpTransport(server.url, "t")) as client,
        pytest.raises(NotAuthenticated),
    ):
        Job(client, job_status()).follow()


def test_close_ends_the_pause_between_two_tries():
    client = Client(HttpTransport(f"http://127.0.0.1:{free_port()}/", "t"))
    raised = []

    def wait():
        try:
            Job(client, job_status()).wait()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    client.close()
    thread.join(10)
    assert not thread.is_alive()
    assert len(raised) == 1


class InterruptedTransport:
    """Carries each call out; the first ones are interrupted just before their answer reaches the caller."""

    description, token = "here", None

    def __init__(self, interrupts: int) -> None:
        self.left = interrupts
        self.keys = set()
        self.calls = []

    def call(self, call, request, *, timeout=None):
        self.calls.append(call.name)
        if call.name == "submit":
            self.keys.add(request.idempotency_key)
        if call.name == "cancel":
            assert request.force
        if self.left:
            self.left -= 1
            raise KeyboardInterrupt
        return job_status(JobState.CANCELLED if call.name == "wait_job" else JobState.RUNNING)

    def close(self):
        pass


@pytest.mark.parametrize("interrupts", [1, 2, 3])
def test_an_interrupt_while_a_job_is_being_stored_kills_it(interrupts):
    """It may be stored, and its submitter would never hold it."""
    transport = InterruptedTransport(interrupts)
    with Client(transport) as client, pytest.raises(KeyboardInterrupt):
        client.submit(CommandJob(("true",)))
    assert len(transport.keys) == 1
    assert transport.calls[-2:] == ["cancel", "wait_job"]


def test_who_interrupts_again_and_again_is_let_go():
    transport = InterruptedTransport(100)
    with Client(transport) as client, pytest.raises(KeyboardInterrupt):
        client.submit(CommandJob(("true",)))
    assert len(transport.keys) == 1


def test_an_interrupt_while_the_killed_jobs_end_is_waited_for_ends_the_waiting():
    transport = InterruptedTransport(1)
    carry_out = transport.call

    def call(call, request, *, timeout=None):
        if call.name == "wait_job":
            transport.left = 1
        return carry_out(call, request, timeout=timeout)

    transport.call = call
    with Client(transport) as client, pytest.raises(KeyboardInterrupt):
        client.submit(CommandJob(("true",)))
    assert transport.calls == ["submit", "submit", "cancel", "wait_job"]


def test_health_is_asked_of_the_server():
    with scripted_server(lambda request: Answer(body=health(workers_alive=7))) as server, Client(HttpTransport(server.url, "t")) as client:
        assert client.health().workers_alive == 7
