"""How many requests a job takes of its worker and of its client, counted in a real server's access log."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.server import RunningServer, running_server

import gpulayer
from gpulayer.bundle.archive import Bundle
from gpulayer.states import JobState

pytestmark = pytest.mark.e2e

WORKER = ("acquire", "start", "logs", "finish")


@dataclass
class Watched:
    """A server that writes its access log, with one worker, and a client."""

    server: RunningServer
    client: gpulayer.Client
    _read: int = 0

    def forget(self) -> None:
        """Count from here on. Requests that are held at this moment are counted when they end."""
        self._read = len(self.server.log())

    def requests(self) -> Counter[str]:
        """What was asked since `forget`, and answered: "GET jobs/ID", "POST worker/acquire"."""
        self.client.health()  # a request's line is written once its answer has gone, and before the next request is taken
        lines = re.findall(r" 200 ([A-Z]+) /gpulayer/v1/([^ ?]+)", self.server.log()[self._read :])
        return Counter(f"{method} {path}" for method, path in lines if path != "health")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with (
        running_server(tmp_path_factory.mktemp("requests") / "home", extra=("--ServerApp.log_level=DEBUG",)) as server,
        gpulayer.connect(server.url, token=server.client_token) as client,
    ):
        client.ensure_local_workers(1, cpu_devices=1)
        # A worker that has just come asks more than one that waits for its next task.
        client.submit(gpulayer.CommandJob(["python", "-c", "pass"])).wait(timeout=60)
        yield Watched(server, client)


def test_a_job_takes_at_most_four_requests_of_its_worker(watched: Watched) -> None:
    watched.forget()
    jobs = []
    for _ in range(4):
        job = watched.client.submit(gpulayer.CommandJob(["python", "-c", "print('one line')"])).wait(timeout=60)
        assert [line.text for line in job.logs()] == ["one line"]
        jobs.append(job.id)
    asked = watched.requests()
    of_the_worker = Counter({path: count for path, count in asked.items() if "/v1/worker/" in f"/v1/{path.split()[1]}"})
    del of_the_worker["POST worker/heartbeat"]  # every five seconds of a job that runs for longer
    acquires = of_the_worker.pop("POST worker/acquire", 0)
    assert acquires <= len(jobs)
    for job_id in jobs:
        for what in WORKER:
            assert of_the_worker.pop(f"POST worker/tasks/{job_id}.0/{what}", 0) <= 1
    assert not of_the_worker


def test_submit_and_wait_are_two_requests_however_long_it_takes(watched: Watched) -> None:
    watched.forget()
    job = watched.client.submit(gpulayer.CommandJob(["python", "-c", "import threading; threading.Event().wait(3)"]))
    assert job.wait(timeout=60).state is JobState.SUCCEEDED
    asked = {path: count for path, count in watched.requests().items() if "worker" not in path}
    assert asked == {"POST jobs": 1, f"GET jobs/{job.id}": 1}


def test_a_jobs_source_is_one_request_more(watched: Watched, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print('from a file')")
    watched.forget()
    job = watched.client.submit(gpulayer.CommandJob(["python", "main.py"], source=str(tmp_path))).wait(timeout=60)
    assert job.state is JobState.SUCCEEDED
    assert {path.split("/")[0]: count for path, count in watched.requests().items() if path.startswith("PUT")} == {"PUT artifacts": 1}
    assert sum(count for path, count in watched.requests().items() if "worker" not in path and "artifacts" not in path) == 2


def test_following_asks_once_for_each_change_and_never_by_the_clock(watched: Watched) -> None:
    watched.forget()
    source = Bundle({"main.py": b"import threading; print('one', flush=True); threading.Event().wait(3); print('two')"})
    job = watched.client.submit(gpulayer.CommandJob(["python", "main.py"]), source=source)
    pages = []
    assert job.follow(on_page=pages.append).state is JobState.SUCCEEDED
    asked = watched.requests()
    assert asked[f"GET jobs/{job.id}/logs"] <= len(pages) + 2  # each page, the end, and what came empty
    assert asked[f"GET jobs/{job.id}"] <= 4  # it is placed, runs, ends
