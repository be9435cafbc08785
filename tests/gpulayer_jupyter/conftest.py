"""A real shell with the magics, in a notebook's folder of its own, which finds no control plane but the one that it starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import IPython
import pytest
from gpulayer_jupyter.export.provider import stop_recording
from IPython.core.interactiveshell import InteractiveShell
from support.notebook import leave_nothing_behind, new_shell

import gpulayer
from gpulayer.embedded import EmbeddedControlPlane


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """What a test runs cells in; a control plane that its jobs started ends with it."""
    leave_nothing_behind(monkeypatch, tmp_path, "notebook")
    monkeypatch.setattr(sys, "path", ["", *sys.path])  # as in a kernel
    shell = new_shell()
    gpulayer.load_ipython_extension(shell)
    yield shell
    stop_recording(shell)
    for opened in list(EmbeddedControlPlane._open.values()):
        opened.close()


@pytest.fixture
def current_shell(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    """The same, for code that asks IPython which shell it runs in."""
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    return shell
