"""From a submit to ranks in the right environment, or to a refusal before any: a real agent and control plane."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.small_wheel import local_requirements, make_wheel
from support.worker import WorkerPlace, worker_place

from gpulayer import CommandJob, DistributedJob, JobState
from gpulayer.errors import Interrupted, InvalidSpec, JobFailed, UnknownArtifact
from gpulayer.protocol import SubmitJob
from gpulayer.worker import environments, interpreter_facts

WAIT_SECONDS = 60.0
PYTHON = ".".join(map(str, sys.version_info[:3]))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerPlace]:
    with worker_place(tmp_path, monkeypatch) as opened:
        yield opened


def program(folder: Path, text: str = "print('ran')\n", *, python: str = PYTHON, packages: dict[str, str] | None = None) -> Path:
    """A folder as a cell becomes one."""
    folder.mkdir()
    (folder / "main.py").write_text(text)
    manifest = {"format": 1, "python": python, "implementation": "cpython", "packages": packages or {}, "files": {"main.py": "0"}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def command(source: Path, **options) -> CommandJob:
    return CommandJob(["python", "main.py"], source=str(source), **options)


def texts(job, *, rank=None) -> list[str]:
    return [line.text for line in job.logs() if line.rank == rank]


def test_a_program_that_finds_what_it_was_written_with_runs_and_its_versions_are_on_record(place: WorkerPlace, tmp_path: Path) -> None:
    place.start_agent()
    job = place.client.submit(command(program(tmp_path / "source", packages={"msgspec": version("msgspec")}))).wait(WAIT_SECONDS)
    assert job.state is JobState.SUCCEEDED
    assert texts(job) == []
    (task,) = job.status.tasks
    assert task.environment.python == PYTHON
    assert task.environment.packages == {"msgspec": version("msgspec")}
    assert task.environment.differences == ()
    assert "equipped" not in task.ranks[0].marks


def test_a_source_without_a_manifest_asks_nobody_and_records_nothing(place: WorkerPlace, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(interpreter_facts, "probe", None)
    place.start_agent()
    source = program(tmp_path / "source")
    (source / "manifest.json").write_text('{"name": "an app"}')
    job = place.client.submit(command(source)).wait(WAIT_SECONDS)
    assert job.state is JobState.SUCCEEDED
    assert job.status.tasks[0].environment is None


def test_source_that_this_python_cannot_read_never_starts_and_is_not_tried_again(place: WorkerPlace, tmp_path: Path) -> None:
    place.start_agent()
    source = program(tmp_path / "source", "print('ran')\nmatch = = 1\n", python="3.99.4")
    job = place.client.submit(command(source, retries=3)).wait(WAIT_SECONDS)
    assert job.state is JobState.FAILED
    assert job.status.attempt == 1
    assert texts(job, rank=0) == []
    with pytest.raises(JobFailed) as failed:
        job.result()
    assert f"Python {PYTHON} can't read 'main.py' line 2" in failed.value.message
    assert "written with Python 3.99.4" in failed.value.message
    assert "worker w" in failed.value.message
    assert job.status.failure.reason == "start"
    assert job.status.failure.lasting
    assert job.status.tasks[0].environment.python == PYTHON  # the record says what it was refused for


def test_another_torch_is_refused_before_any_rank_and_another_numpy_is_told_once_for_all_ranks(
    place: WorkerPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = interpreter_facts.probe
    asked = []

    def pretend(python, environment):
        asked.append(python)
        found = real(python, environment)
        return replace(found, packages={**found.packages, "torch": "2.12.1", "numpy": "1.26.4"})

    monkeypatch.setattr(interpreter_facts, "probe", pretend)
    place.start_agent(cpu_devices=3, name="a")
    place.start_agent(cpu_devices=3, name="b")
    refused = program(tmp_path / "refused", packages={"torch": "2.13.0+cpu"})
    job = place.client.submit(DistributedJob(script="main.py", source=str(refused), nodes=2, launcher="direct", retries=1)).wait(
        WAIT_SECONDS
    )
    assert job.state is JobState.FAILED
    assert "torch 2.13.0+cpu, and this worker has 2.12.1" in job.status.failure.message
    assert job.status.attempt == 1
    told = program(tmp_path / "told", packages={"torch": "2.12.0", "numpy": "2.1.0"})
    job = place.client.submit(DistributedJob(script="main.py", source=str(told), nodes=2, devices=2, launcher="direct")).wait(WAIT_SECONDS)
    assert job.state is JobState.SUCCEEDED
    assert [line.text for line in job.logs()].count("ran") == 4
    (said,) = texts(job)
    assert said.endswith("than where the program was written: torch 2.12.0 there, 2.12.1 here; numpy 2.1.0 there, 1.26.4 here.")
    differences = ("torch 2.12.0 there, 2.12.1 here", "numpy 2.1.0 there, 1.26.4 here")
    assert [task.environment.differences for task in job.status.tasks] == [differences] * 2
    assert len(asked) == 2  # each worker once


def test_requirements_are_there_for_the_job_and_their_time_is_a_step_of_the_waterfall(place: WorkerPlace, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "smallone", "1.5")
    file = tmp_path / "requirements.txt"
    file.write_text(local_requirements(tmp_path / "wheels", "smallone"))
    code = "import os, smallone, subprocess, sys; print(smallone.VERSION, os.environ['VIRTUAL_ENV'] == sys.prefix);"
    code += "subprocess.run(['python3', '-c', 'import smallone, gpulayer'], check=True)\n"
    agent = place.start_agent(cpu_devices=2)
    source = program(tmp_path / "source", code, packages={"smallone": "1.5"})
    script = DistributedJob(script="main.py", source=str(source), devices=2, launcher="direct", requirements=str(file))
    job = place.client.submit(script).wait(WAIT_SECONDS)
    assert job.state is JobState.SUCCEEDED, texts(job)
    assert texts(job) == ["Building the environment of the job's requirements."]
    assert [line.text for line in job.logs() if line.rank is not None] == ["1.5 True"] * 2
    steps = [span.step for span in job.waterfall() if span.rank == 0]
    assert steps[:3] == ["fetch", "environment", "launch"]
    (task,) = job.status.tasks
    assert task.environment.packages == {"smallone": "1.5"}
    assert task.environment.build_seconds > 0
    assert task.environment.requirements is not None
    again = place.client.submit(command(source, requirements=str(file))).wait(WAIT_SECONDS)
    assert again.state is JobState.SUCCEEDED
    assert texts(again) == []
    assert again.status.tasks[0].environment.build_seconds is None
    assert agent.error is None


def test_requirements_that_can_not_be_had_fail_the_job_with_their_line(place: WorkerPlace, tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(local_requirements(tmp_path, "never_published==9"))
    place.start_agent()
    job = place.client.submit(CommandJob(["true"], requirements=str(file))).wait(WAIT_SECONDS)
    assert job.state is JobState.FAILED
    assert "never_published==9 (line 3 of the requirements)" in job.status.failure.message
    assert "No matching distribution found" in job.status.failure.message
    assert not job.status.failure.lasting  # an index may be back
    # The worker goes on.
    assert place.client.submit(CommandJob(["true"])).wait(WAIT_SECONDS).state is JobState.SUCCEEDED


def test_a_job_that_is_cancelled_while_its_environment_is_built_ends_at_once(place: WorkerPlace, tmp_path: Path, monkeypatch) -> None:
    begun = threading.Event()

    def hang(folder, requirements, *, stopped, **options) -> None:
        begun.set()
        assert stopped.wait(WAIT_SECONDS)
        raise Interrupted("stopped")

    monkeypatch.setattr(environments, "build_environment", hang)
    file = tmp_path / "requirements.txt"
    file.write_text("x\n")
    place.start_agent()
    job = place.client.submit(CommandJob(["true"], requirements=str(file)))
    assert begun.wait(WAIT_SECONDS)
    assert "requirements to install" in place.client.job(job.id).status.waiting_for
    assert job.cancel().wait(WAIT_SECONDS).state is JobState.CANCELLED


def test_requirements_that_mean_nothing_elsewhere_are_refused_before_anything_is_sent(place: WorkerPlace, tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("-e .\n")
    with pytest.raises(InvalidSpec, match="does not travel"):
        place.client.submit(CommandJob(["true"], requirements=str(file)))
    with pytest.raises(InvalidSpec, match="can't be read"):
        place.client.submit(CommandJob(["true"], requirements=str(tmp_path / "none.txt")))
    with pytest.raises(InvalidSpec, match="path of a file"):
        CommandJob(["true"], requirements=" ")
    request = SubmitJob(spec=CommandJob(["true"]), idempotency_key="k", requirements="0" * 64)
    with pytest.raises(UnknownArtifact, match="requirements"):
        place.client.call("submit", request)
