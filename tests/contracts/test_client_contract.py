"""One suite for both ways to a control plane: the same calls give the same answers, files and errors.

Each of the two is real and starts once: the embedded control plane of this process, and a Jupyter server with the extension
as a process on loopback. Each has one worker with two cpu devices.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from pathlib import Path

import pytest
from support.server import running_server

import gpulayer
from gpulayer import CommandJob
from gpulayer.bundle.archive import Bundle
from gpulayer.embedded import EmbeddedControlPlane
from gpulayer.errors import (
    Conflict,
    Interrupted,
    InvalidSpec,
    JobFailed,
    NotFound,
    UnknownArtifact,
    UnknownJob,
    UnknownWorker,
    Unplaceable,
)
from gpulayer.states import JobState
from gpulayer.targets import connect

pytestmark = pytest.mark.e2e

LONG = CommandJob(["python", "-c", "print('started', flush=True)\nimport signal\nsignal.pause()"])


@pytest.fixture(scope="module", params=["in_process", "http"])
def client(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        for name in ("GPULAYER_URL", "GPULAYER_TOKEN", "GPULAYER_CONNECTION_FILE"):
            patch.delenv(name, raising=False)
        patch.setenv("GPULAYER_WORK_DIR", str(folder / "work"))
        if request.param == "http":
            server = stack.enter_context(running_server(folder / "home"))
            made = connect(server.url, token=server.client_token)
        else:
            control_plane = EmbeddedControlPlane.open(folder / "home")
            stack.callback(control_plane.close)
            made = control_plane.client()
        stack.enter_context(made)
        made.ensure_local_workers(1, cpu_devices=2)
        yield made


def python(code: str, **fields) -> CommandJob:
    return CommandJob(["python", "-c", code], **fields)


def test_a_job_runs_and_its_record_its_exit_and_its_lines_are_there(client):
    job = client.submit(python("import sys; print('é漢🙂'); print('oops', file=sys.stderr); print('no newline', end='')", name="hello"))
    assert job.wait() is job
    assert (job.state, job.exit_code, job.name) == (JobState.SUCCEEDED, 0, "hello")
    assert job.result().job_id == job.id
    lines = {(line.stream, line.number): (line.rank, line.text) for line in job.logs()}
    assert lines == {("stdout", 1): (0, "é漢🙂"), ("stderr", 1): (0, "oops"), ("stdout", 2): (0, "no newline")}
    assert [line.text for line in job.logs(rank=0) if line.stream == "stdout"] == ["é漢🙂", "no newline"]
    with pytest.raises(NotFound, match="rank 0 only"):
        list(job.logs(rank=1))
    (task,) = job.status.tasks
    assert task.worker


def test_following_shows_lines_while_the_job_runs_and_all_of_them_at_the_end(client, tmp_path):
    gate = tmp_path / "gate"
    code = f"""
import os, threading
print('before', flush=True)
while not os.path.exists({str(gate)!r}):
    threading.Event().wait(0.01)
print('after')
"""
    job = client.submit(python(code))
    seen = []
    for line in job.follow_logs():
        seen.append(line.text)
        if line.text == "before":
            assert not job.refresh().status.state.is_terminal
            gate.touch()
    assert seen == ["before", "after"]
    assert job.result().state is JobState.SUCCEEDED


def test_follow_brings_output_and_states_to_the_calling_thread(client):
    job = client.submit(python("print('x' * 100000)"))
    states, size, threads = [], 0, set()

    def on_page(page):
        nonlocal size
        threads.add(threading.current_thread())
        size += sum(len(chunk.data) for chunk in page.chunks)

    status = job.follow(on_page=on_page, on_status=lambda status: states.append(status.state))
    assert status.state is JobState.SUCCEEDED
    assert states[-1] is JobState.SUCCEEDED
    assert size == 100001
    assert threads == {threading.current_thread()}


def test_a_failed_job_is_data_until_its_result_is_asked_for(client):
    job = client.submit(python("import sys; print('last words', file=sys.stderr); sys.exit(3)")).wait()
    assert (job.state, job.exit_code) == (JobState.FAILED, 3)
    with pytest.raises(JobFailed) as raised:
        job.result()
    text = raised.value.two_lines()
    assert "rank 0" in text
    assert "exited with code 3" in text
    assert len(text.splitlines()) == 2
    assert raised.value.details["job_id"] == job.id


def test_a_signal_is_named(client):
    job = client.submit(python("import os; os.kill(os.getpid(), 9)")).wait()
    assert job.exit_code == -9
    with pytest.raises(JobFailed, match="SIGKILL"):
        job.result()


def test_cancel_ends_a_running_job(client):
    job = client.submit(LONG)
    assert next(job.follow_logs()).text == "started"
    with pytest.raises(TimeoutError):
        job.wait(timeout=0.05)
    job.cancel()
    assert job.wait(timeout=30).state is JobState.CANCELLED
    with pytest.raises(JobFailed, match="was cancelled"):
        job.result()
    assert job.cancel().state is JobState.CANCELLED


def test_inputs_reach_the_job_and_outputs_come_back(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/train.csv").write_bytes(b"a,b\r\n")
    Path("tree/deep").mkdir(parents=True)
    Path("tree/deep/leaf").write_text("leaf")
    code = """
import os, pathlib
out = pathlib.Path(os.environ["GPULAYER_OUTPUT_DIR"])
(out / "sub").mkdir()
(out / "sub" / "copy.csv").write_bytes(pathlib.Path("data/train.csv").read_bytes())
(out / "leaf").write_text(pathlib.Path(os.environ["GPULAYER_INPUTS_DIR"], "tree", "deep", "leaf").read_text())
"""
    spec = python(code, inputs={"train": "data/train.csv", "tree": str(tmp_path / "tree")})
    job = client.submit(spec)
    job.result()
    assert sorted(job.outputs) == ["leaf", "sub/copy.csv"]
    paths = job.download(tmp_path / "out")
    assert sorted(path.relative_to(tmp_path / "out").as_posix() for path in paths) == ["leaf", "sub/copy.csv"]
    assert (tmp_path / "out/sub/copy.csv").read_bytes() == b"a,b\r\n"
    assert (tmp_path / "out/leaf").read_text() == "leaf"


def test_source_travels_as_a_folder_or_as_a_bundle(client, tmp_path):
    (tmp_path / "main.py").write_text("import part; print(part.WORD)")
    (tmp_path / "part.py").write_text("WORD = 'from the folder'")
    job = client.submit(CommandJob(["python", "main.py"], source=str(tmp_path)))
    job.result()
    assert [line.text for line in job.logs()] == ["from the folder"]
    bundle = Bundle({"main.py": b"print('from the bundle')"})
    job = client.submit(CommandJob(["python", "main.py"]), source=bundle)
    job.result()
    assert [line.text for line in job.logs()] == ["from the bundle"]


def test_the_same_key_gives_the_same_job_and_another_job_under_it_is_refused(client):
    first = client.submit(python("pass"), idempotency_key="contract-key")
    assert client.submit(python("pass"), idempotency_key="contract-key").id == first.id
    with pytest.raises(Conflict):
        client.submit(python("1"), idempotency_key="contract-key")
    first.wait()


def test_jobs_are_listed_newest_first_and_found_by_id(client):
    ids = [client.submit(python("pass", name=f"listed-{number}")).wait().id for number in range(3)]
    assert [job.id for job in client.jobs(limit=3)] == ids[::-1]
    assert all(job.status.state is JobState.SUCCEEDED for job in client.jobs(state="succeeded"))
    assert client.job(ids[0]).name == "listed-0"


def test_what_is_not_there_is_told_by_the_same_errors(client, tmp_path):
    with pytest.raises(UnknownJob):
        client.job("j-none")
    with pytest.raises(UnknownWorker):
        client.drain_worker("w-none")
    with pytest.raises(UnknownArtifact):
        client.transport.get_artifact("0" * 64, tmp_path / "nothing")
    with pytest.raises(InvalidSpec):
        client.jobs(state="lost")
    with pytest.raises(InvalidSpec, match="not there"):
        client.submit(python("pass", inputs={"x": str(tmp_path / "missing")}))
    with pytest.raises(Unplaceable):
        client.submit(gpulayer.DistributedJob(script="main.py", devices=64), source=Bundle({"main.py": b""}))


def test_artifacts_are_stored_by_content_once(client, tmp_path):
    data = b"0123456789" * 1000
    digest = hashlib.sha256(data).hexdigest()
    (tmp_path / "in").write_bytes(data)
    assert not client.transport.has_artifact(digest)
    client.transport.put_artifact(tmp_path / "in", digest)
    client.transport.put_artifact(tmp_path / "in", digest)
    assert client.transport.has_artifact(digest)
    client.transport.get_artifact(digest, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == data
    (tmp_path / "in").write_bytes(b"something else")
    with pytest.raises(Conflict):
        client.transport.put_artifact(tmp_path / "in", "1" * 64)
    assert not client.transport.has_artifact("1" * 64)


def test_workers_and_health(client):
    (worker,) = client.workers()
    assert (worker.state, worker.local, len([device for device in worker.devices if device.accelerator == "cpu"])) == ("alive", True, 2)
    assert [one.worker_id for one in client.ensure_local_workers(1)] == [worker.worker_id]
    assert client.start_workers_for(python("pass")) == []
    assert client.health().workers_alive == 1
    assert client.create_join_token().token


def test_closing_a_client_ends_its_waits(client):
    other = gpulayer.Client(_second_way(client))
    job = other.submit(LONG)
    assert next(job.follow_logs()).text == "started"
    raised: list[BaseException] = []
    waiting = threading.Event()

    def wait():
        try:
            waiting.set()
            job.wait()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait(10)
    other.close()
    thread.join(10)
    assert [type(error) for error in raised] == [Interrupted]
    client.job(job.id).cancel(force=True).wait()


def _second_way(client):
    from gpulayer.client.http_transport import HttpTransport

    transport = client.transport
    if isinstance(transport, HttpTransport):
        return HttpTransport(transport.url, transport.token)
    (control_plane,) = EmbeddedControlPlane._open.values()
    return control_plane.client().transport
