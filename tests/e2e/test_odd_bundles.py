"""Sources sent to a real control plane and worker: hostile archives, programs of another Python or torch, files with other line ends."""

from __future__ import annotations

import io
import json
import os
import platform
import tarfile
from importlib import metadata
from pathlib import Path

import pytest
from support.worker import WorkerPlace, worker_place

import gpulayer
from gpulayer.bundle.archive import Bundle, Link
from gpulayer.calls import CALLS
from gpulayer.client.artifact_file import file_digest
from gpulayer.client.script_job import script_job
from gpulayer.errors import InvalidSpec
from gpulayer.protocol import GetSource, InputFile, SubmitJob
from gpulayer.states import JobState
from gpulayer.worker import agent

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch, worker_place(tmp_path_factory.mktemp("place"), patch) as opened:
        patch.setattr(agent, "find_frameworks", lambda python: {"python": "3", "torch": "2"})
        opened.start_agent(cpu_devices=2)
        yield opened


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


HOSTILE = {
    "upwards": [member("../escaped")],
    "absolute": [member("/tmp/gpulayer-escaped")],
    "drive": [member("C:/escaped")],
    "link out": [member("link", tarfile.SYMTYPE, "../..")],
    "link chain": [member("one", tarfile.SYMTYPE, "."), member("two", tarfile.SYMTYPE, "one/..")],
    "hard link": [member("hard", tarfile.LNKTYPE, "/etc/passwd")],
    "device": [member("null", tarfile.CHRTYPE)],
}


def hostile_archive(name: str, folder: Path) -> Path:
    path = folder / "hostile.tar"
    with tarfile.open(path, "w") as archive:
        program = member("main.py")
        program.size = 8
        archive.addfile(program, io.BytesIO(b"print(1)"))
        for one in HOSTILE[name]:
            archive.addfile(one, io.BytesIO(b""))
    return path


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_by_the_control_plane_and_the_worker(place: WorkerPlace, tmp_path: Path, name: str) -> None:
    archive = hostile_archive(name, tmp_path)
    digest, size = file_digest(archive)
    place.client.transport.put_artifact(archive, digest)
    spec = gpulayer.CommandJob(["python", "main.py"])
    input_file = InputFile(sha256=digest, size_bytes=size, link=None, archive=True)
    for number, given in enumerate([{"source": digest, "inputs": {}}, {"source": None, "inputs": {"data": input_file}}]):
        request = SubmitJob(spec=spec, idempotency_key=f"{digest}-{number}", **given)
        status = place.client.transport.call(CALLS["submit"], request)
        job = place.client.job(status.job_id).wait(timeout=60)
        assert job.state is JobState.FAILED
        assert job.status.failure is not None
        assert "refused" in job.status.failure.message
        assert list(job.logs()) == []
        if given["source"]:
            with pytest.raises(InvalidSpec):
                place.client.call("read_source", GetSource(job_id=job.id))
    # Not rglob(): workspaces go while this looks.
    names = {name for _, folders, files in os.walk(place.folder) for name in (*folders, *files)}
    assert not names & {"escaped", "link", "one", "two", "hard", "null"}
    assert not Path("/tmp/gpulayer-escaped").exists()


def test_the_agent_lives_on_and_a_link_inside_is_kept(place: WorkerPlace) -> None:
    program = b"import os\nprint(os.readlink('link'), open('link').read())"
    bundle = Bundle({"main.py": program, "data/real": b"bytes", "link": Link("data/real")})
    job = place.client.submit(script_job("main.py"), source=bundle).wait(timeout=60)
    assert job.result().state is JobState.SUCCEEDED
    assert [line.text for line in job.logs(rank=0)] == ["data/real bytes"]


def manifest(**fields: object) -> bytes:
    known = {"format": 1, "python": platform.python_version(), "implementation": "cpython", "packages": {}, "files": {}, "cells": []}
    return json.dumps(known | fields).encode()


@pytest.mark.parametrize(
    ("program", "fields", "named"),
    [
        (
            b"print(1)\nmatch = lazy import this\n",
            {"python": "3.99.1", "files": {"main.py": ""}},
            ["3.99.1", f"Python {platform.python_version()}", "'main.py' line 2"],
        ),
        (b"print(1)\n", {"packages": {"torch": "9.8.7"}}, ["torch 9.8.7", metadata.version("torch")]),
    ],
)
def test_a_program_of_a_kernel_that_this_worker_cannot_stand_in_for_starts_no_rank(
    place: WorkerPlace, program: bytes, fields: dict[str, object], named: list[str]
) -> None:
    """The kernel is pretended: its manifest says what it has."""
    bundle = Bundle({"main.py": program, "manifest.json": manifest(**fields)})
    job = place.client.submit(script_job("main.py", retries=2), source=bundle).wait(timeout=60)
    assert job.state is JobState.FAILED
    assert job.status.failure is not None
    assert not [name for name in named if name not in str(job.status.failure)]
    [task] = job.status.tasks
    assert all(rank.pid is None for rank in task.ranks)
    assert list(job.logs()) == []
    assert task.environment is not None
    assert task.environment.python == platform.python_version()


CRLF = (
    b"import json, os, sys\r\n"
    b"from helper import TEXT\r\n"
    b"long = '''one\r\ntwo'''\r\n"
    b"with open('data.csv', 'rb') as file:\r\n"
    b"    data = file.read().hex()\r\n"
    b"if True: \\\r\n"
    b"    print(json.dumps([os.environ.get('RANK', '0'), data, TEXT, long, __import__('inspect').getsource(sys.modules['helper'])]))\r\n"
)


@pytest.mark.parametrize("launcher", ["torchrun", "warm"])
def test_programs_with_crlf_run_and_data_keeps_its_bytes(place: WorkerPlace, launcher: str) -> None:
    data = bytes(range(256)) + b"a,b\r\n1,2\n3,4\r"
    bundle = Bundle({"main.py": CRLF, "helper.py": b"TEXT = 'a'\\\r\n  'b'\r\n", "data.csv": data})
    job = place.client.submit(script_job("main.py", devices=2, launcher=launcher), source=bundle)
    assert job.wait(timeout=120).result().state is JobState.SUCCEEDED
    for rank in range(2):
        [line] = [line.text for line in job.logs(rank=rank) if line.stream == "stdout"]
        assert json.loads(line) == [str(rank), data.hex(), "ab", "one\ntwo", "TEXT = 'a'\\\n  'b'\n"]
