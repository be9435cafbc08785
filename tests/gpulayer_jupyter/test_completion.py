"""Tab completion of both magics in a real shell, which never waits for a server for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpulayer_jupyter import completion
from gpulayer_jupyter.completion import KnownJobs, complete_magics, complete_no_more
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from support.notebook import new_shell


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[InteractiveShell]:
    monkeypatch.setattr("gpulayer.settings.config_dir", lambda: tmp_path)
    monkeypatch.setattr(completion, "_recent", {})
    shell = new_shell()
    complete_magics(shell, KnownJobs(lambda: [("j0", "train succeeded"), ("j1", "my job running"), ("j2", "train running")]))
    yield shell
    complete_no_more(shell)


def complete(shell: InteractiveShell, text: str) -> list[str]:
    """The words that the line could end with."""
    with provisionalcompleter():
        found = list(shell.Completer.completions(text, len(text)))
    return [(text[: one.start] + one.text).rpartition(" ")[2] for one in found]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%%gpulayer --no", ["--nodes"]),
        ("%%gpulayer --nodes 2 --de", ["--devices", "--detach"]),
        ("%%gpulayer --accelerator c", ["cpu", "cuda"]),
        ("%%gpulayer --launcher to", ["torchrun"]),
        ("%%gpulayer --bind ", ["server", "kernel"]),
        ("%%gpulayer --target ", ["local", "cluster"]),
        ("%gpulayer a", ["attach", "autoload"]),
        ("%gpulayer attach ", ["j2", "j1", "j0", "train"]),
        ("%gpulayer logs j1 --r", ["--rank"]),
        ("%gpulayer logs --rank 0 j", ["j2", "j1", "j0"]),
        ("%gpulayer cancel tr", ["train"]),
        ("%%gpulayer --ex", ["--exclude"]),
        ("%%gpulayer --rerun ", ["all"]),
        ("%gpulayer e", ["export"]),
        ("%gpulayer rerun --", ["--reset"]),
        ("%gpulayer config no", ["nodes="]),
        ("%gpulayer config accelerator=m", ["accelerator=mps"]),
        ("%gpulayer config view=", ["view=auto", "view=text", "view=widget"]),
        ("%gpulayer cancel j1 --", ["--force", "--target"]),
    ],
)
def test_words_that_may_come_next(line: str, words: list[str], shell: InteractiveShell) -> None:
    assert complete(shell, line) == words


def test_beside_an_id_stands_what_job_it_is(shell: InteractiveShell) -> None:
    with provisionalcompleter():
        found = list(shell.Completer.completions("%gpulayer logs j", len("%gpulayer logs j")))
    assert [(one.text, one.type) for one in found] == [("j2", "train running"), ("j1", "my job running"), ("j0", "train succeeded")]


def test_options_complete_above_a_body(shell: InteractiveShell) -> None:
    text = "%%gpulayer --no\nprint(1)"
    with provisionalcompleter():
        found = list(shell.Completer.completions(text, len("%%gpulayer --no")))
    assert [one.text for one in found] == ["--nodes"]


def test_other_lines_are_left_to_ipython(shell: InteractiveShell) -> None:
    shell.user_ns["devices_here"] = 1
    assert "devices_here" in complete(shell, "devices_he")
    assert "devices_here" in complete(shell, "%%gpulayer\nx = devices_he")


def test_a_server_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "_recent", {"j7": "seen running"})
    monkeypatch.setattr(completion, "WAIT_SECONDS", 0.01)
    release = threading.Event()
    asked: list[int] = []

    def ask() -> list[tuple[str, str]]:
        asked.append(1)
        release.wait(30)
        return []

    jobs = KnownJobs(ask)
    assert jobs.words() == ["j7", "seen"]
    assert jobs.words() == ["j7", "seen"]
    assert asked == [1]
    release.set()


def test_completing_twice_and_undoing_twice(shell: InteractiveShell) -> None:
    before = len(shell.Completer.custom_matchers)
    complete_magics(shell)
    assert len(shell.Completer.custom_matchers) == before
    complete_no_more(shell)
    complete_no_more(shell)
    assert len(shell.Completer.custom_matchers) == before - 1
