"""The commands against the embedded control plane of this process, with one real worker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading

import pytest
from support.small_wheel import local_requirements, make_wheel

from gpulayer import CommandJob
from gpulayer.cli.main import run_command
from gpulayer.protocol import ReadEvents
from gpulayer.states import JobState


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "part.py").write_text("WORD = 'from beside it'")
    return tmp_path


def test_run_takes_the_project_along_shows_the_output_and_fetches_what_is_left(client, project, capsys):
    (project / "train.py").write_text(
        "import os, sys, part\n"
        "print(part.WORD, sys.argv[1:], os.environ['MODE'])\n"
        "print('a warning', file=sys.stderr)\n"
        "open(os.environ['GPULAYER_OUTPUT_DIR'] + '/out.txt', 'w').write(open('inputs.csv').read())\n"
    )
    (project / "inputs.csv").write_text("1,2")
    arguments = ["run", "--name", "mine", "--env", "MODE=quick", "--input", "data=inputs.csv", "train.py", "--lr", "0.1"]
    assert run_command(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out == "[rank 0] from beside it ['--lr', '0.1'] quick\n"
    assert "[rank 0 err] a warning\n" in captured.err
    (job,) = client.jobs(limit=1)
    assert job.name == "mine"
    assert f"gpulayer_runs/{job.id}/" in captured.err
    assert (project / "gpulayer_runs" / job.id / "out.txt").read_text() == "1,2"


def test_run_brings_requirements_along(client, project, capsys):
    make_wheel(project / "wheels", "smallone", "1.5")
    (project / "requirements.txt").write_text(local_requirements(project / "wheels", "smallone"))
    (project / "train.py").write_text("import smallone; print(smallone.VERSION)")
    assert run_command(["run", "--requirements", "requirements.txt", "train.py"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "[rank 0] 1.5\n"
    assert "Building the environment of the job's requirements." in captured.err
    (project / "requirements.txt").write_text("-e .\n")
    assert run_command(["run", "--requirements", "requirements.txt", "train.py"]) == 2
    assert "requirements.txt line 1: -e ." in capsys.readouterr().err


def test_run_ends_as_its_job_did(client, project, capsys):
    (project / "bad.py").write_text("raise ValueError('odd')")
    assert run_command(["run", "bad.py"]) == 1
    captured = capsys.readouterr()
    (job,) = client.jobs(limit=1)
    assert job.name == "bad"
    assert captured.err.startswith(f"gpulayer: job {job.id} 'bad', 1 × 1, embedded control plane")
    assert captured.err.splitlines()[-2:] == ["ValueError: odd (bad.py:1)", f"Its output: gpulayer logs {job.id} --rank 0"]
    (project / "seven.py").write_text("import sys; sys.exit(7)")
    assert run_command(["run", "seven.py"]) == 7
    (project / "killed.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert run_command(["run", "killed.py"]) == 128 + 9


def test_ctrl_c_cancels_the_job_and_waits_for_its_end(client, project, capsys):
    (project / "long.py").write_text("import signal; print('started', flush=True); signal.pause()")
    ran = threading.Event()

    def interrupt():
        while not client.jobs(state="running"):
            pass
        job = client.jobs(state="running")[0]
        assert next(job.follow_logs()).text == "started"
        ran.set()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    # A run that was started in a shell's background inherits SIGINT as ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread = threading.Thread(target=interrupt)
        thread.start()
        assert run_command(["run", "long.py"]) == 130
        thread.join(10)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ran.is_set()
    (job,) = client.jobs(limit=1)
    assert job.status.state is JobState.CANCELLED
    assert "cancelling" in capsys.readouterr().err


def test_submit_waits_or_refuses_to_leave_an_embedded_job(client, capsys):
    assert run_command(["submit", "--wait", "--", "python", "-c", "print('hello')"]) == 0
    job_id = capsys.readouterr().out.strip()
    assert run_command(["submit", "--", "true"]) == 1
    assert "it needs a server" in capsys.readouterr().err
    assert run_command(["logs", job_id]) == 0
    assert capsys.readouterr().out == "[rank 0] hello\n"
    for arguments in (["logs", job_id, "--rank", "5"], ["logs", job_id, "--rank", "1", "--follow"]):
        assert run_command(arguments) == 1
        assert "has no such rank" in capsys.readouterr().err
    assert run_command(["logs", job_id, "--follow", "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["rank"], line["stream"], line["number"], line["text"]) == (0, "stdout", 1, "hello")
    assert run_command(["submit", "--wait", "--json", "--", "python", "-c", "raise SystemExit(3)"]) == 3
    assert json.loads(capsys.readouterr().out)["state"] == "failed"


def test_jobs_are_listed_without_their_variables(client, capsys):
    client.submit(CommandJob(["python", "-c", "raise SystemExit(4)"], env={"TOKEN": "canary"}, name="listed")).wait()
    assert run_command(["jobs", "--json", "--limit", "1"]) == 0
    out = capsys.readouterr().out
    record = json.loads(out)
    assert (record["name"], record["state"], record["nodes"], record["devices"]) == ("listed", "failed", 1, 1)
    assert "exited with code 4" in record["failure"]
    assert "canary" not in out
    assert run_command(["jobs", "--state", "failed"]) == 0
    assert "listed" in capsys.readouterr().out


def test_cancel_names_what_it_stopped(client, capsys):
    job = client.submit(CommandJob(["python", "-c", "import signal; signal.pause()"]))
    assert run_command(["cancel", job.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == job.id
    assert job.wait(30).state is JobState.CANCELLED
    assert run_command(["cancel", "j-none"]) == 1


def test_workers_are_listed(client, capsys):
    assert run_command(["workers", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["name"], record["state"], record["local"]) == ("local-1", "alive", True)
    assert [device["accelerator"] for device in record["devices"] if device["accelerator"] == "cpu"] == ["cpu", "cpu"]
    assert run_command(["workers"]) == 0
    assert "2 cpu" in capsys.readouterr().out


def test_an_embedded_control_plane_gives_no_tokens(client, capsys):
    assert run_command(["token", "create", "--join"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "needs a server" in captured.err
    assert run_command(["token", "create", "--client"]) == 2
    assert "embedded" in capsys.readouterr().err


def test_doctor_says_what_is_found(client, capsys, monkeypatch):
    monkeypatch.setattr("gpulayer.hardware.inventory.find_frameworks", lambda python: {"torch": "2.13.0"})
    assert run_command(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["control_plane"].startswith("embedded control plane")
    assert report["workers_alive"] == 1
    assert run_command(["doctor", "--target", "http://127.0.0.1:9/"]) == 1
    assert "Nobody answers" in capsys.readouterr().out


def test_a_worker_of_another_process_serves_the_home_until_it_is_told_to_end(client, folder):
    argv = [sys.executable, "-m", "gpulayer", "worker", "start", "--home", str(folder / "home"), "--name", "second"]
    argv += ["--cpu-devices", "5", "--work-dir", str(folder / "work-2")]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    try:
        after = 0
        while not any(worker.name == "second" for worker in client.workers()):
            after = client.call("read_events", ReadEvents(after=after, wait=30.0)).next
        job = client.submit(CommandJob(["python", "-c", "print('far')"], devices=5))
        assert [line.text for line in job.follow_logs()] == ["far"]
        assert job.result().tasks[0].worker == "second"
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
    finally:
        process.kill()
        process.communicate()
    assert [worker.name for worker in client.workers() if worker.state == "alive"] == ["local-1"]
