from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
import threading

import pytest
from support.client import Answer, free_port, health, job_status, scripted_server

from gpulayer.calls import CALLS
from gpulayer.client import exchange, http_transport
from gpulayer.client.http_transport import HttpTransport
from gpulayer.errors import InternalError, Interrupted, InvalidSpec, ServerUnreachable, UnknownArtifact, encode_error
from gpulayer.protocol import (
    AcquireTask,
    CancelJob,
    CreateJoinToken,
    GetHealth,
    GetJob,
    ListWorkers,
    Registered,
    RegisterWorker,
    WorkerList,
    WorkerOrders,
)
from gpulayer.states import JobState


def test_a_get_carries_its_fields_in_path_and_query_and_the_token_in_a_header():
    with scripted_server(lambda request: Answer(body=job_status(JobState.SUCCEEDED))) as server:
        transport = HttpTransport(server.url + "base", "secret")
        status = transport.call(CALLS["wait_job"], GetJob(job_id="j1", wait=2.5))
        transport.call(CALLS["wait_job"], GetJob(job_id="j1", after_revision=3))
        transport.close()
    assert status.state is JobState.SUCCEEDED
    first, second = server.requests
    assert (first.method, first.path, first.query) == ("GET", "/base/gpulayer/v1/jobs/j1", {"wait": "2.5"})
    assert first.headers["authorization"] == "Bearer secret"
    assert second.query == {"wait": "0.0", "after_revision": "3"}
    assert server.connections == 1


def test_a_post_carries_its_other_fields_as_json_and_flags_travel_in_queries():
    answers = {"/gpulayer/v1/jobs/j1/cancel": job_status(), "/gpulayer/v1/workers": WorkerList(workers=())}
    with scripted_server(lambda request: Answer(body=answers[request.path])) as server:
        transport = HttpTransport(server.url, None)
        transport.call(CALLS["cancel"], CancelJob(job_id="j1", force=True))
        transport.call(CALLS["list_workers"], ListWorkers(include_gone=True))
        transport.close()
    assert server.requests[0].json() == {"force": True}
    assert "authorization" not in server.requests[0].headers
    assert server.requests[1].query == {"include_gone": "true"}


@pytest.mark.parametrize("cut", [Answer(cut=True), Answer(status=502, body=b"<html>bad gateway</html>"), Answer(status=504)])
def test_a_cut_connection_is_tried_once_more(cut):
    answers = iter([cut, Answer(body=health())])
    with scripted_server(lambda request: next(answers)) as server:
        transport = HttpTransport(server.url, "t")
        assert transport.call(CALLS["get_health"], GetHealth()) == health()
        transport.close()
    assert len(server.requests) == 2


def test_what_is_not_idempotent_is_sent_once():
    with scripted_server(lambda request: Answer(cut=True)) as server:
        transport = HttpTransport(server.url, "t")
        with pytest.raises(ServerUnreachable):
            transport.call(CALLS["create_join_token"], CreateJoinToken())
        transport.close()
    assert len(server.requests) == 1


def test_nobody_there_names_the_address():
    transport = HttpTransport(f"http://127.0.0.1:{free_port()}/", "t")
    with pytest.raises(ServerUnreachable, match="Nobody answers at http"):
        transport.call(CALLS["get_health"], GetHealth())
    transport.close()


def test_silence_ends_at_the_deadline():
    release = threading.Event()
    with scripted_server(lambda request: Answer(body=health()) if release.wait(20) else Answer()) as server:
        transport = HttpTransport(server.url, "t")
        with pytest.raises(ServerUnreachable, match="No answer came in time"):
            transport.call(CALLS["get_health"], GetHealth(), timeout=0.05)
        release.set()
        transport.close()
    assert len(server.requests) == 1  # a second time would be a second wait


def test_a_call_that_was_cut_is_tried_again_only_in_the_time_that_is_left(monkeypatch):
    now = itertools.repeat(100.0)
    clock = type("Clock", (), {"monotonic": staticmethod(lambda: next(now))})
    for after_the_cut, requests in ((100.5, 2), (101.0, 1)):
        # It begins, connects, sends and waits, reads: then it is cut.
        now = itertools.chain([100.0] * 4, itertools.repeat(after_the_cut))
        answers = iter([Answer(cut=True), Answer(body=health())])
        with scripted_server(lambda request, answers=answers: next(answers)) as server, monkeypatch.context() as patch:
            patch.setattr(http_transport, "time", type("Start", (), {"monotonic": staticmethod(lambda: 100.0)}))
            patch.setattr(exchange, "time", clock)
            transport = HttpTransport(server.url, "t")
            if requests == 2:
                assert transport.call(CALLS["get_health"], GetHealth(), timeout=1.0) == health()
            else:
                with pytest.raises(ServerUnreachable, match="was cut"):
                    transport.call(CALLS["get_health"], GetHealth(), timeout=1.0)
            transport.close()
        assert len(server.requests) == requests


def test_close_ends_calls_that_other_threads_hold():
    arrived, release = threading.Event(), threading.Event()

    def answer(request):
        arrived.set()
        release.wait(20)
        return Answer(body=job_status())

    caught: list[BaseException] = []

    def hold():
        try:
            transport.call(CALLS["wait_job"], GetJob(job_id="j1", wait=30))
        except BaseException as error:
            caught.append(error)

    with scripted_server(answer) as server:
        transport = HttpTransport(server.url, "t")
        thread = threading.Thread(target=hold)
        thread.start()
        assert arrived.wait(10)
        transport.close()
        thread.join(5)
        assert not thread.is_alive()
        release.set()
    assert [type(error) for error in caught] == [Interrupted]
    with pytest.raises(Interrupted):
        transport.call(CALLS["get_health"], GetHealth())


def test_a_server_that_holds_no_calls_is_asked_twice_a_second_and_close_ends_the_pause():
    with scripted_server(lambda request: Answer(body=WorkerOrders())) as server:
        transport = HttpTransport(server.url, "t")
        pauses: list[float] = []
        transport._closing.wait = pauses.append  # the pause itself, without the waiting
        acquire = AcquireTask(worker_id="w", boot="b", free=1, wait=30)
        transport.call(CALLS["acquire_task"], acquire)
        assert len(pauses) == 1
        assert 0.3 < pauses[0] <= 0.5
        del transport._closing.wait
        transport.close()
        with pytest.raises(Interrupted):
            transport.call(CALLS["acquire_task"], acquire)


def test_a_transport_that_registers_speaks_as_that_worker():
    registered = Registered(worker_id="w1", token="worker-token", idle_lease_seconds=1, busy_lease_seconds=1, heartbeat_seconds=1)
    register = RegisterWorker(
        boot="b", protocol=1, version="0", name="w", host="h", boot_id="x", address="a", python="p", devices=(), frameworks={}
    )
    answers = iter([registered, WorkerOrders(drain=True)])
    with scripted_server(lambda request: Answer(body=next(answers))) as server:
        transport = HttpTransport(server.url, "join-token")
        transport.call(CALLS["register_worker"], register)
        assert transport.token == "worker-token"
        transport.call(CALLS["acquire_task"], AcquireTask(worker_id="w1", boot="b", free=0))
        transport.close()
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer join-token", "Bearer worker-token"]


@pytest.mark.parametrize("url", ["127.0.0.1:8888", "ftp://host/", "http:///", "http://fd00::1:8888/", "http://[fd00::1:8888/"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(InvalidSpec):
        HttpTransport(url, None)


def test_an_id_cannot_lead_to_another_path():
    transport = HttpTransport("http://127.0.0.1:1/", None)
    for job_id in ("../workers", "a/b", "", "..", "j?x=1"):
        with pytest.raises(InvalidSpec):
            transport.call(CALLS["wait_job"], GetJob(job_id=job_id))
    transport.close()


# ---- artifacts


class Store:
    """Takes parts as the server does."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.whole: set[str] = set()

    def __call__(self, request):
        name = request.path.rpartition("/")[2]
        if request.method == "PUT":
            self.files.setdefault(name, bytearray())[int(request.query["offset"]) :] = request.body
            if len(self.files[name]) == int(request.query["total"]):
                self.whole.add(name)
            return Answer(body={"complete": name in self.whole})
        if name not in self.whole:
            return Answer(status=404, body=encode_error(UnknownArtifact("None.", asked=name)))
        return Answer(body=bytes(self.files[name]))


def test_a_small_artifact_is_sent_without_asking(tmp_path):
    (tmp_path / "in").write_bytes(b"small")
    with scripted_server(Store()) as server:
        transport = HttpTransport(server.url, "t")
        transport.put_artifact(tmp_path / "in", hashlib.sha256(b"small").hexdigest())
        assert [request.method for request in server.requests] == ["PUT"]
        transport.close()


@pytest.mark.parametrize("size", [0, 1, 100, 250])
def test_artifacts_go_and_come_in_parts(tmp_path, monkeypatch, size):
    monkeypatch.setattr("gpulayer.client.artifact_file.send_parts.__kwdefaults__", {"part_bytes": 100})
    monkeypatch.setattr("gpulayer.client.http_transport.ASK_FIRST_BYTES", 0)
    data = bytes(range(256))[:size]
    digest = hashlib.sha256(data).hexdigest()
    (tmp_path / "in").write_bytes(data)
    store = Store()
    with scripted_server(store) as server:
        transport = HttpTransport(server.url, "t")
        assert not transport.has_artifact(digest)
        transport.put_artifact(tmp_path / "in", digest)
        sent = [request for request in server.requests if request.method == "PUT"]
        assert len(sent) == max(1, -(-size // 100))
        assert transport.has_artifact(digest)
        transport.put_artifact(tmp_path / "in", digest)
        assert len([request for request in server.requests if request.method == "PUT"]) == len(sent)
        transport.get_artifact(digest, tmp_path / "new" / "out")
        transport.close()
    assert (tmp_path / "new" / "out").read_bytes() == data


def test_a_damaged_or_missing_artifact_leaves_nothing_behind(tmp_path):
    with scripted_server(lambda request: Answer(body=b"other bytes")) as server:
        transport = HttpTransport(server.url, "t")
        with pytest.raises(InternalError, match="damaged"):
            transport.get_artifact("0" * 64, tmp_path / "out")
        transport.close()
    with scripted_server(Store()) as server:
        transport = HttpTransport(server.url, "t")
        with pytest.raises(UnknownArtifact):
            transport.get_artifact("0" * 64, tmp_path / "out")
        transport.close()
    assert list(tmp_path.iterdir()) == []


# ---- what a first call loads


def test_a_direct_call_loads_neither_httpx_nor_http_client():
    """Each takes longer to import than a call takes; a script's first call is as soon as its others."""
    code = (
        "import sys\n"
        "from gpulayer.calls import CALLS\n"
        "from gpulayer.client.http_transport import HttpTransport\n"
        "from gpulayer.protocol import GetHealth\n"
        "HttpTransport(sys.argv[1], 't').call(CALLS['get_health'], GetHealth())\n"
        "print(sorted({'httpx', 'http.client', 'ssl', 'email', 'asyncio', 'urllib.request'} & set(sys.modules)))"
    )
    with scripted_server(lambda request: Answer(body=health())) as server:
        done = subprocess.run([sys.executable, "-c", code, server.url], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("token", ["two\r\nlines", "with space", "tökén", "nul\0"])
def test_a_token_that_cannot_stand_in_a_header_is_refused(token):
    with pytest.raises(InvalidSpec) as raised:
        HttpTransport("http://127.0.0.1:1/", token)
    assert token not in str(raised.value)


@pytest.mark.parametrize("port", ["65536", "http"])
def test_a_port_that_is_none_is_refused(port):
    with pytest.raises(InvalidSpec, match="A port"):
        HttpTransport(f"http://127.0.0.1:{port}/", None)


def test_base_urls_and_ids_of_other_alphabets_are_quoted():
    with scripted_server(lambda request: Answer(body=job_status())) as server:
        transport = HttpTransport(server.url + "user/zoë x/", "t")
        transport.call(CALLS["wait_job"], GetJob(job_id="j-ж"))
        transport.close()
    assert server.requests[0].path == "/user/zo%C3%AB%20x/gpulayer/v1/jobs/j-%D0%B6"
