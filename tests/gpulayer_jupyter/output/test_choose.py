"""Which place a job's output goes to: a terminal, text, or what the front end has shown that it draws."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from gpulayer_jupyter.defaults import KernelDefaults, set_defaults
from gpulayer_jupyter.output.cell_display import CellDisplay
from gpulayer_jupyter.output.choose import place_for
from gpulayer_jupyter.output.terminal_display import TerminalDisplay


class Shell:
    def __init__(self, kernel: Any = None) -> None:
        self.kernel = kernel


JOB = SimpleNamespace(id="j1", client=SimpleNamespace(is_embedded=True))


def test_without_a_kernel_it_is_the_terminal() -> None:
    assert isinstance(place_for(Shell(), JOB), TerminalDisplay)


@pytest.mark.parametrize(
    ("view", "draws", "widget"), [("auto", False, False), ("auto", True, True), ("text", True, False), ("widget", False, True)]
)
def test_a_widget_only_where_it_is_drawn_or_asked_for(view: str, draws: bool, widget: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulayer_jupyter.output.choose.draws_widgets", lambda shell: draws)
    shell = Shell(kernel=object())
    set_defaults(shell, KernelDefaults(view=view))
    place = place_for(shell, JOB)
    assert isinstance(place, CellDisplay)
    assert (place._make_widget is not None) is widget
