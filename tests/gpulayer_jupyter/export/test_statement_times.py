"""How long statements took, asked of a real shell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gpulayer_jupyter.export import statement_times
from gpulayer_jupyter.export.provider import recorder_of, stop_recording
from gpulayer_jupyter.export.statement_times import StatementTimes
from IPython.core.interactiveshell import InteractiveShell
from support.notebook import new_shell


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    shell = new_shell()
    yield shell
    stop_recording(shell)


class Clock:
    """Goes on as it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def times(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> StatementTimes:
    clock = Clock()
    monkeypatch.setattr(statement_times, "time", clock)
    shell.user_ns["wait"] = clock.wait
    recorder_of(shell)
    return _times_of(shell)


def _times_of(shell: InteractiveShell) -> StatementTimes:
    from gpulayer_jupyter.export import provider

    return provider._times[shell]


def _seconds(shell: InteractiveShell, times: StatementTimes) -> list[tuple[str, float | None]]:
    pieces, _ = recorder_of(shell).history.pieces(shell.input_transformer_manager.transform_cell)
    seconds_of = times.lookup()
    return [(piece.place(), seconds_of(piece)) for piece in pieces if not piece.unfinished]


def test_each_statement_has_its_own(shell: InteractiveShell, times: StatementTimes) -> None:
    shell.run_cell("wait(3)\n\nfor n in range(2):\n    wait(n + 1)\nx = 1; wait(5)", store_history=True)
    assert _seconds(shell, times) == [
        ("cell 1, line 1", 3.0),
        ("cell 1, line 3", 3.0),
        ("cell 1, line 5", 0),
        ("cell 1, line 5", 5.0),
    ]


def test_each_run_of_a_cell_has_its_own(shell: InteractiveShell, times: StatementTimes) -> None:
    for seconds in (1, 2):
        shell.user_ns["n"] = seconds
        shell.run_cell("wait(n)", store_history=True)
    assert _seconds(shell, times) == [("cell 1, line 1", 1.0), ("cell 2, line 1", 2.0)]


def test_below_a_magic_that_times_all_statements_have_the_whole_time(shell: InteractiveShell, times: StatementTimes) -> None:
    shell.run_cell("%%time\nx = wait(3)\ny = 1", store_history=True)
    assert _seconds(shell, times) == [("cell 1, line 2", 3.0), ("cell 1, line 3", 3.0)]


def test_a_statement_that_runs_a_cell_is_timed_as_a_whole(shell: InteractiveShell, times: StatementTimes) -> None:
    shell.run_cell("%%capture\nwait(3)\nwait(4)", store_history=True)
    pieces, _ = recorder_of(shell).history.pieces(shell.input_transformer_manager.transform_cell)
    assert {times.lookup()(piece) for piece in pieces} == {7.0}


def test_a_statement_that_raises_and_await(shell: InteractiveShell, times: StatementTimes) -> None:
    shell.run_cell("async def f():\n    wait(2)\nawait f()\nwait(1)\n1 / 0", store_history=True)
    assert [seconds for _, seconds in _seconds(shell, times)] == [0, 2.0, 1.0]


def test_what_ran_before_is_not_known(shell: InteractiveShell) -> None:
    shell.run_cell("x = [n for n in range(3)]", store_history=True)
    recorder_of(shell)
    shell.run_cell("y = 1", store_history=True)
    assert _seconds(shell, _times_of(shell)) == [("cell 1, line 1", None), ("cell 2, line 1", 0)]


def test_stopping_gives_back_what_others_had_put_there_before(shell: InteractiveShell) -> None:
    plain = shell.run_code

    async def theirs(*arguments: object, **options: object) -> object:
        return await plain(*arguments, **options)

    shell.run_code = theirs
    recorder_of(shell)
    stop_recording(shell)
    assert shell.run_code is theirs


def test_stopping_leaves_the_shell_as_it_was_and_others_in_place(shell: InteractiveShell) -> None:
    recorder_of(shell)
    stop_recording(shell)
    assert "run_code" not in vars(shell)
    recorder_of(shell)
    ours = shell.run_code

    async def theirs(*arguments: object, **options: object) -> object:
        return await ours(*arguments, **options)

    shell.run_code = theirs
    stop_recording(shell)
    assert shell.run_code is theirs
    assert shell.run_cell("x = 1").success
