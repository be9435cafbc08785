from __future__ import annotations

import io

import click
import pytest

from gpulayer.cli.secrets import read_token
from gpulayer.errors import InvalidSpec


def test_a_token_comes_from_stdin_or_a_file_and_never_from_what_may_be_another_servers(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("from-stdin\nmore\n"))
    (tmp_path / "token").write_text("from-file\n")
    assert read_token(True, None) == "from-stdin"
    assert read_token(False, str(tmp_path / "token")) == "from-file"
    monkeypatch.setenv("GPULAYER_TOKEN", "from-environment")
    assert read_token(False, None) is None


def test_what_is_no_token_is_refused(tmp_path, monkeypatch):
    with pytest.raises(click.UsageError):
        read_token(True, "file")
    with pytest.raises(InvalidSpec):
        read_token(False, str(tmp_path / "missing"))
    for text in ("", "\n", "two words\n", "bell\a\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        with pytest.raises(InvalidSpec):
            read_token(True, None)


def test_on_a_terminal_it_is_asked_for_without_echo(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    asked = []
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("gpulayer.cli.secrets.click.prompt", lambda text, **how: asked.append((text, how["hide_input"])) or "typed")
    assert read_token(True, None, kind="Join token") == "typed"
    assert asked == [("Join token", True)]
