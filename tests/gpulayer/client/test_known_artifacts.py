from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

import pytest
from support.client import Answer, Request, ScriptedServer, job_status, scripted_server

from gpulayer import CommandJob, DistributedJob
from gpulayer.bundle.archive import Bundle
from gpulayer.client import known_artifacts
from gpulayer.client.client import Client
from gpulayer.client.http_transport import ASK_FIRST_BYTES, HttpTransport
from gpulayer.client.known_artifacts import KnownArtifacts
from gpulayer.errors import UnknownArtifact, encode_error

BUNDLE = Bundle({"main.py": b"print(1)"})
JOB = DistributedJob(script="main.py", nodes=1, devices=1)


class Home:
    """A control plane that holds artifacts, refuses jobs whose own it lacks, and can be emptied."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.keeps = True

    def __call__(self, request: Request) -> Answer:
        name = request.path.rpartition("/")[2]
        if request.method == "PUT":
            assert hashlib.sha256(request.body).hexdigest() == name
            if self.keeps:
                self.held.add(name)
            return Answer(body={"complete": True})
        if request.method == "HEAD":
            return Answer() if name in self.held else Answer(status=404, body=encode_error(UnknownArtifact("None.", asked=name)))
        sent = request.json()
        needed = {sent["source"], sent["requirements"], *(file["sha256"] for file in sent["inputs"].values())} - {None}
        if not needed <= self.held:
            return Answer(status=404, body=encode_error(UnknownArtifact("It is not here.", asked=str(needed - self.held))))
        return Answer(body=job_status())


@contextlib.contextmanager
def home_and_client() -> Iterator[tuple[Home, ScriptedServer, Client]]:
    home = Home()
    with scripted_server(home) as server, Client(HttpTransport(server.url, "t")) as client:
        yield home, server, client


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(known_artifacts, "_known", {})


def methods(server: ScriptedServer) -> list[str]:
    found = [request.method for request in server.requests]
    server.requests.clear()
    return found


@pytest.mark.parametrize("size", [10, ASK_FIRST_BYTES * 2])
def test_the_second_submit_of_the_same_bundle_sends_none_of_its_bytes_and_asks_nothing(size):
    bundle = Bundle({"main.py": b"#" * size})
    with home_and_client() as (_, server, client):
        client.submit(JOB, source=bundle)
        assert sum(len(request.body) for request in server.requests if request.method == "PUT") >= size
        first = methods(server)
        assert first[-2:] == ["PUT", "POST"]
        # A cell connects anew each time.
        with Client(HttpTransport(server.url, "t")) as another:
            another.submit(JOB, source=bundle)
        assert sum(len(request.body) for request in server.requests) < 1000  # the request itself
        assert methods(server) == ["POST"]


def test_inputs_and_requirements_are_not_sent_again_either(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/leaf").write_text("leaf")
    (tmp_path / "requirements.txt").write_text("numpy\n")
    inputs = {"rows": str(tmp_path / "rows.csv"), "tree": str(tmp_path / "tree")}
    job = CommandJob(["true"], inputs=inputs, requirements=str(tmp_path / "requirements.txt"))
    with home_and_client() as (_, server, client):
        client.submit(job)
        assert methods(server) == ["PUT", "PUT", "PUT", "POST"]
        client.submit(job)
        assert methods(server) == ["POST"]
        (tmp_path / "rows.csv").write_text("c,d\n")
        client.submit(job)
        assert methods(server) == ["PUT", "POST"]


def test_a_control_plane_that_has_lost_it_is_sent_it_again_under_the_same_key():
    with home_and_client() as (home, server, client):
        client.submit(JOB, source=BUNDLE)
        home.held.clear()  # restarted with another home, or cleaned up
        server.requests.clear()
        client.submit(JOB, source=BUNDLE)
        refused, stored = [request.json() for request in server.requests if request.method == "POST"]
        assert refused == stored
        assert methods(server) == ["POST", "PUT", "POST"]
        assert home.held == {BUNDLE.digest()}
        client.submit(JOB, source=BUNDLE)
        assert methods(server) == ["POST"]


def test_each_control_plane_is_sent_its_own():
    with home_and_client() as (one, _, first), home_and_client() as (other, _, second):
        first.submit(JOB, source=BUNDLE)
        second.submit(JOB, source=BUNDLE)
        assert one.held == other.held == {BUNDLE.digest()}


def test_what_was_sent_and_is_missing_all_the_same_is_told_and_not_sent_for_ever():
    with home_and_client() as (home, server, client):
        home.keeps = False
        with pytest.raises(UnknownArtifact):
            client.submit(JOB, source=BUNDLE)
        assert methods(server) == ["PUT", "POST"]
        with pytest.raises(UnknownArtifact):
            client.submit(JOB, source=BUNDLE)
        assert methods(server) == ["POST", "PUT", "POST"]


def test_an_upload_that_failed_is_not_known(tmp_path):
    class Failing:
        url = "http://one/"
        puts = 0

        def put_artifact(self, path, sha256):
            self.puts += 1
            raise OSError("cut")

    failing = Failing()
    for _ in range(2):
        store = KnownArtifacts(failing)
        with pytest.raises(OSError, match="cut"):
            store.put_artifact(tmp_path / "file", "0" * 64)
        assert not store.forget()
    assert failing.puts == 2


def test_a_control_plane_in_this_process_is_asked_each_time(tmp_path):
    class InProcess:
        puts = 0

        def put_artifact(self, path, sha256):
            self.puts += 1

    store = InProcess()
    for _ in range(2):
        KnownArtifacts(store).put_artifact(tmp_path / "file", "0" * 64)
    assert store.puts == 2
    assert known_artifacts._known == {}


def test_what_is_remembered_is_bounded(tmp_path, monkeypatch):
    class Anything:
        url = "http://one/"

        def put_artifact(self, path, sha256):
            pass

    monkeypatch.setattr(known_artifacts, "MOST_KNOWN", 5)
    for number in range(20):
        KnownArtifacts(Anything()).put_artifact(tmp_path / "file", f"{number:064}")
        assert 1 <= len(known_artifacts._known) <= 5
