"""Side effects of earlier cells in a real shell: refused until a person has decided, remembered, told with the job."""

from __future__ import annotations

import pytest
from gpulayer_jupyter.export import side_effects
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

import gpulayer
from gpulayer.errors import InvalidSpec, NotExportable, NotFound

pytestmark = pytest.mark.usefixtures("current_shell")

WRITES = "def keep(value):\n    with open('log.txt', 'a') as file:\n        file.write('kept ')\n    return value"


def _run(shell: InteractiveShell, cell: str) -> ExecutionResult:
    return shell.run_cell(cell, store_history=True)


def _refusal(result: ExecutionResult) -> NotExportable:
    assert isinstance(result.error_in_exec, NotExportable)
    return result.error_in_exec


def test_refused_with_the_three_ways_out_then_accepted_and_remembered(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    _run(shell, WRITES)
    _run(shell, "x = 1\n# with a word\nx = keep(x)")
    refused = _refusal(_run(shell, "%%gpulayer\nprint('x is', x)"))
    assert refused.two_lines().splitlines() == [
        "A statement of an earlier cell that this cell needs would run again on every rank:",
        "  cell 2, line 3: writes files (open in keep): x = keep(x)",
        (
            "Send what it leaves as a value with --send x; leave it out with --exclude 2:3; or let it run with --rerun 2:3, "
            "which this kernel remembers (--rerun all accepts every one)."
        ),
    ]
    assert refused.details == {"statements": [{"place": "2:3", "reasons": ["writes files (open in keep)"]}]}
    assert "Traceback" not in capsys.readouterr().out
    assert _run(shell, "%%gpulayer --rerun 2:3\nprint('x is', x)").success
    shown = capsys.readouterr().out
    assert "also ran on every rank: cell 2, line 3: writes files (open in keep)\n" in shown
    assert "[rank 0] x is 1" in shown
    # The same cell run again has another number, and is the same statement.
    _run(shell, "x = 1\n# with a word\nx = keep(x)")
    _run(shell, "%%gpulayer --dry-run\nprint(x)")
    shown = capsys.readouterr().out
    assert "run again on every rank, as accepted:" in shown
    assert "cell 5, line 3: writes files" in shown
    _run(shell, "x = keep(2)")
    assert "cell 7, line 1" in _refusal(_run(shell, "%%gpulayer\nprint(x)")).message


def test_left_out_or_sent_instead(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    _run(shell, WRITES)
    _run(shell, "x = 1")
    _run(shell, "x = keep(2)")
    capsys.readouterr()
    assert _run(shell, "%%gpulayer --exclude 3:1\nprint('x is', x)").success
    shown = capsys.readouterr().out
    assert "[rank 0] x is 1" in shown
    assert "also ran" not in shown
    assert _run(shell, "%%gpulayer --send x\nprint('x is', x)").success
    assert "[rank 0] x is 2" in capsys.readouterr().out


def test_the_preview_refuses_nothing_and_shows_both_files(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    _run(shell, WRITES)
    _run(shell, "x = keep(3)")
    assert _run(shell, "%%gpulayer --dry-run\ny = x + 1\nprint(y)").success
    shown = capsys.readouterr().out
    assert "would run again on every rank, and is refused until you decide:" in shown
    assert "    cell 2, line 1: writes files (open in keep): x = keep(3)\n" in shown
    assert "--exclude 2:1" in shown
    assert "\nmain.py:\n\n# Written by GPUlayer" in shown
    assert "\ncell.py:\n\ny = x + 1\nprint(y)\n" in shown
    assert not _run(shell, "%%gpulayer\nprint(x)").success  # a preview accepts nothing
    _run(shell, "%%gpulayer --dry-run\nprint(x)")
    capsys.readouterr()
    assert _run(shell, "%gpulayer rerun 2:1").success
    assert capsys.readouterr().out == "accepted on every rank that needs them:\n  x = keep(3)\n"


def test_what_took_long_is_told_with_its_time(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(side_effects, "SLOW_SECONDS", 0.2)
    _run(shell, "import threading\ndef slow():\n    threading.Event().wait(0.4)\n    return 1")
    _run(shell, "x = slow()\ny = str(x)")
    refused = _refusal(_run(shell, "%%gpulayer\nprint(x, y)"))
    assert len(refused.details["statements"]) == 1
    assert refused.message.splitlines()[1].startswith("  cell 2, line 1: took 0.")
    assert refused.message.endswith("s in the kernel: x = slow()")


def test_a_preview_names_cells_that_ran_before_the_extension(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    gpulayer.unload_ipython_extension(shell)
    _run(shell, "x = sorted([2, 1])")
    gpulayer.load_ipython_extension(shell)
    assert _run(shell, "%%gpulayer --dry-run\nprint(x)").success
    assert "how long cell [1] took is not known: run before %load_ext gpulayer" in capsys.readouterr().out


def test_a_launched_fit_is_refused_and_accepted_by_command(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    _run(shell, WRITES)
    cell = (
        "from gpulayer.bundle.source_provider import current_provider\n"
        "x = keep(4)\n"
        "source = current_provider(in_terminal=print).collect() if x else None"
    )
    refused = _refusal(_run(shell, cell))
    assert refused.fix == "Accept with %gpulayer rerun all (or CELL:LINE), and run the cell again."
    unknown = _run(shell, "%gpulayer rerun nothing").error_in_exec
    assert isinstance(unknown, NotFound)
    assert (unknown.asked, unknown.found) == ("nothing", "2:2")
    capsys.readouterr()
    _run(shell, "%gpulayer rerun all")
    assert capsys.readouterr().out == "accepted on every rank that needs them:\n  x = keep(4)\n"
    assert _run(shell, cell).success
    _run(shell, "%gpulayer rerun --reset")
    assert capsys.readouterr().out == "no side effects accepted\n"
    assert not _run(shell, cell).success


@pytest.mark.parametrize("options", ["--exclude 9:1", "--only nothing", "--rerun 1:7"])
def test_choices_that_nothing_answers_to(options: str, shell: InteractiveShell) -> None:
    _run(shell, "x = 1")
    assert isinstance(_run(shell, f"%%gpulayer {options}\nprint(x)").error_in_exec, InvalidSpec)


def test_a_name_that_is_written_like_one_is_told(shell: InteractiveShell) -> None:
    _run(shell, "rows = [1]")
    refused = _run(shell, "%%gpulayer --exclude rosw\nprint(1)").error_in_exec
    assert isinstance(refused, InvalidSpec)
    assert refused.fix == "Did you mean 'rows'?"
