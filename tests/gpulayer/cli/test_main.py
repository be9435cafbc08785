from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gpulayer._version import __version__
from gpulayer.cli.main import _COMMANDS, cli, run_command


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    for name in ("GPULAYER_URL", "GPULAYER_TOKEN", "GPULAYER_CONNECTION_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GPULAYER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("gpulayer.settings.config_dir", lambda: tmp_path / "config")


def test_every_command_loads_and_has_help(capsys):
    for name in _COMMANDS:
        assert run_command([name, "--help"]) == 0
        assert capsys.readouterr().out.startswith("Usage: gpulayer " + name)
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out == f"gpulayer {__version__}\n"
    assert cli.get_command(None, "nope") is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], "No such command"),
        (["run", "--devicez", "4", "x.py"], "--devicez"),
        (["run"], "SCRIPT"),
        (["run", "/no/such.py"], "The script is not there"),
        (["run", "--devices", "some", __file__], "not a number"),
        (["run", "--devices", "0", __file__], "at least one device"),
        (["run", "--devices", "0.5", __file__], "Whole devices only."),
        (["run", "--nodes", "0", __file__], "at least one"),
        (["run", "--devices", "2.0", __file__], "Whole devices only."),
        (["run", "--env", "NAME", __file__], "not of the form NAME=VALUE"),
        (["run", "--timeout", "soon", __file__], "not a duration"),
        (["run", "--grace", "0", __file__], "positive number of seconds"),
        (["run", "--launcher", "mpi", __file__], "There is no such launcher."),
        (["run", "--accelerator", "tpu", __file__], "There is no such accelerator."),
        (["submit"], "COMMAND"),
        (["submit", "--retries", "-1", "--", "true"], "Retries"),
        (["jobs", "--target", "nope"], "no target of this name"),
        (["target", "use"], "--none"),
        (["target", "add", "x", "no-url"], "http://"),
        (["token", "create"], "--join"),
        (["worker", "start", "--server", "http://127.0.0.1:9/"], "token"),
    ],
)
def test_bad_input_is_two_lines_on_stderr_and_code_2(capsys, arguments, words):
    assert run_command(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) <= 2
    assert lines[0].startswith("gpulayer: ")
    assert words in captured.err


def test_what_fails_otherwise_is_code_1(capsys):
    assert run_command(["jobs", "--target", "http://127.0.0.1:9/"]) == 1
    assert "Nobody answers at http://127.0.0.1:9/" in capsys.readouterr().err
    assert run_command(["worker", "start"]) == 1
    assert "No server to join." in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_traceback(tmp_path):
    code = "import gpulayer.cli.main as m, os, sys; os.close(1); os.dup2(os.open(sys.argv[1], os.O_WRONLY), 1); m.main(['--help'])"
    done = subprocess.run([sys.executable, "-c", code, "/dev/full"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    reader = (
        "import subprocess, sys; "
        "p = subprocess.Popen([sys.executable, '-m', 'gpulayer', '--help'], stdout=subprocess.PIPE, stderr=subprocess.PIPE); "
        "p.stdout.close(); print(p.stderr.read().decode(), p.wait())"
    )
    done = subprocess.run([sys.executable, "-c", reader], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stdout
    assert "Exception ignored" not in done.stdout


def test_targets_come_and_go(capsys, tmp_path):
    (tmp_path / "token").write_text("secret-token\n")
    assert run_command(["target", "list"]) == 0
    assert "no targets" in capsys.readouterr().out
    assert run_command(["target", "add", "lab", "http://lab:8888/", "--token-file", str(tmp_path / "token")]) == 0
    assert run_command(["target", "use", "lab"]) == 0
    assert run_command(["target", "list", "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out) == {"name": "lab", "url": "http://lab:8888/", "has_token": True, "default": True}
    assert run_command(["target", "list"]) == 0
    out = capsys.readouterr().out
    assert "lab" in out
    assert "secret-token" not in out
    assert run_command(["target", "use", "--none"]) == 0
    assert run_command(["target", "remove", "lab"]) == 0
    assert run_command(["target", "remove", "lab"]) == 2


@pytest.mark.parametrize("arguments", [[], ["worker"]])
def test_without_arguments_its_help_is_shown_as_it_is(capsys, arguments):
    assert run_command(arguments) == 2
    assert capsys.readouterr().err.startswith("Usage: gpulayer")


def test_a_targets_address_is_kept_without_its_page_and_token(capsys):
    assert run_command(["target", "add", "lab", "http://lab:8888/lab?token=secret-token"]) == 0
    assert run_command(["target", "list", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"name": "lab", "url": "http://lab:8888/", "has_token": True, "default": False}
    assert "secret-token" not in captured.err
