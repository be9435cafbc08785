"""The magics in a real shell: options, refusals as two lines, and where a job would run. Full jobs are the e2e lane's."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpulayer_jupyter.export.provider import recorder_of
from gpulayer_jupyter.options import cell_parser, parse_cell_options, parse_command
from IPython.core.error import UsageError
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

import gpulayer
from gpulayer.errors import InvalidSpec, NotExportable, Unsupported


def _run(shell: InteractiveShell, cell: str) -> ExecutionResult:
    return shell.run_cell(cell, store_history=True)


def test_loading_twice_registers_once(shell: InteractiveShell) -> None:
    before = recorder_of(shell), shell.magics_manager.registry["GPUlayerMagics"]
    gpulayer.load_ipython_extension(shell)
    assert (recorder_of(shell), shell.magics_manager.registry["GPUlayerMagics"]) == before
    _run(shell, "x = 1")
    assert len(recorder_of(shell).history.runs) == 1


@pytest.mark.parametrize("above", ["# a comment\n", "x = 1\n", "# one\n\n# two\n"])
def test_below_the_first_line_nothing_runs_and_the_reason_is_said(above: str, shell: InteractiveShell) -> None:
    result = _run(shell, f"{above}%%gpulayer --devices 2\nran = True")
    assert isinstance(result.error_in_exec, UsageError)
    assert "%%gpulayer must be the first line of the cell" in str(result.error_in_exec)
    assert "ran" not in shell.user_ns


@pytest.mark.parametrize(
    ("line", "kind", "says"),
    [
        ("--device 2", UsageError, "unrecognized arguments: --device 2"),
        ("--bogus", UsageError, "unrecognized arguments: --bogus"),
        ("--nodes", UsageError, "--nodes: expected one argument"),
        ("--devices many", UsageError, "'many' is not a number"),
        ("--env A", UsageError, "'A' is not of the form NAME=VALUE"),
        ("--input some.csv", UsageError, "'some.csv' is not of the form NAME=PATH"),
        ("--as x --fetch y,x", UsageError, "argument --as: 'x' is fetched as well"),
        ("--requirements none.txt", InvalidSpec, "Name a file with a requirement a line"),
        ("--devises 2", UsageError, "unrecognized arguments: --devises 2; did you mean --devices?\n%%gpulayer? lists the options."),
        ("--timeout soon", UsageError, "'soon' is not a duration"),
        ("--grace 0", InvalidSpec, "positive number of seconds"),
        ("--devices 2.0", InvalidSpec, "Whole devices only"),
        ("--name 'open", UsageError, "can't be read"),
        ("--devices 0", InvalidSpec, "at least one device"),
        ("--devices -1", InvalidSpec, "at least one device"),
        ("--devices 0.5", InvalidSpec, "Whole devices only"),
        ("--nodes 0", InvalidSpec, "whole number of nodes"),
        ("--nodes 1.5", InvalidSpec, "whole number of nodes"),
        ("--accelerator tpu", InvalidSpec, "no such accelerator"),
        ("--accelerator mps --devices 2", InvalidSpec, "MPS drives one device"),
        ("--launcher mpi", InvalidSpec, "no such launcher"),
        ("--env GPULAYER_X=1", InvalidSpec, "set by GPUlayer itself"),
    ],
)
def test_wrong_options_are_two_lines(
    line: str, kind: type[Exception], says: str, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    result = _run(shell, f"%%gpulayer {line}\nran = True")
    assert type(result.error_in_exec) is kind
    shown = "".join(capsys.readouterr())
    assert says in shown
    assert "Traceback" not in shown
    assert len(shown.strip().splitlines()) <= 2


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (
            "x = 1\n!ls",
            [
                "NotExportable: Cell 1, line 3: `!ls` is a shell command, not Python, so it can't run on ranks.",
                "Take the line out of the cell.",
            ],
        ),
        (
            "await f()",
            [
                "NotExportable: 'f' (cell 1, line 2) is bound nowhere: in no cell that this kernel ran, nor in Python itself.",
                "Check how it is written, or bind it in a cell.",
            ],
        ),
        ("x = (\n1 +", ['  File "cell [1]", line 2', "    x = (", "        ^", "SyntaxError: '(' was never closed"]),
    ],
)
def test_refusals_show_no_internals(body: str, lines: list[str], shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    result = _run(shell, f"%%gpulayer\n{body}")
    assert isinstance(result.error_in_exec, NotExportable)
    assert capsys.readouterr().out.rstrip().splitlines() == lines


def test_value_put_into_the_kernel_from_outside(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.user_ns["df"] = [1]
    result = _run(shell, "%%gpulayer\nprint(df)")
    assert isinstance(result.error_in_exec, NotExportable)
    assert capsys.readouterr().out.startswith("NotExportable: 'df' (cell 1, line 2)")


def test_dry_run_shows_what_would_be_sent(shell: InteractiveShell, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("dry_run_helper.py").write_text("x = 1")
    Path("train.csv").write_text("1,2")
    Path("other.csv").write_text("3,4")
    _run(shell, "import dry_run_helper as helper\nimport msgspec")
    _run(shell, "# two\ny = [helper.x]\n\nunused = 1\ny.append(2)")
    _run(shell, "n = 2")
    listing = sorted(Path().iterdir())
    capsys.readouterr()
    magic = "%%gpulayer --dry-run --nodes {n} --devices $n --input data=train.csv"
    result = _run(shell, f"{magic}\nprint(y, msgspec, 'train.csv', 'other.csv')")
    assert result.success
    shown = capsys.readouterr().out
    for text in (
        "Nothing has been sent",
        "cell [1]  lines 1–2",
        "cell [2]  lines 1–2, 5",
        "cell [4]  line 2",
        "local modules: dry_run_helper",
        "packages: msgspec ",
        "input data: train.csv (3 bytes)",
        "file dry_run_helper.py: 5 bytes",
        "--input other=other.csv sends it",
        "main.py (cell 1 is [1], cell 2 is [2], cell 3 is [4]):\n\n",
        "y = [helper.x]",
        "sha256 ",
        "It asks for 2 workers at once, each with 2 free devices of one kind.",
        "At the embedded control plane",
        "2 local workers × 2 CPU devices would be started",
    ):
        assert text in shown
    assert "'train.csv' (cell" not in shown  # it is sent already
    assert sorted(Path().iterdir()) == listing


def test_the_same_cell_twice_has_one_digest(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    _run(shell, "x = 1")
    digests = []
    for _ in range(2):
        _run(shell, "%%gpulayer --dry-run\nprint(x)")
        digests += [line for line in capsys.readouterr().out.splitlines() if "sha256" in line]
    assert digests[0] == digests[1]


def test_a_cell_of_comments_is_called_by_its_own_number(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = []
    monkeypatch.setattr("gpulayer_jupyter.magics.describe_export", lambda export, spec, **_: names.append(spec.name))
    _run(shell, "x = 1")
    _run(shell, "%%gpulayer --dry-run\n# nothing")
    assert names == ["cell-2"]


def test_words_are_quoted_as_in_a_shell() -> None:
    options = parse_cell_options("""--name 'two words' --env "A=b c" --env B= --env C=d\\ e --input "x=a folder" """)
    assert options.name == "two words"
    assert options.env == [("A", "b c"), ("B", ""), ("C", "d e")]
    assert options.input == [("x", "a folder")]


def test_detach_needs_a_server(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    result = _run(shell, "%%gpulayer --detach\nprint(1)")
    assert isinstance(result.error_in_exec, Unsupported)
    assert "--detach needs a server" in capsys.readouterr().out


def test_commands_without_jobs_and_workers(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    _run(shell, "%gpulayer jobs")
    _run(shell, "%gpulayer workers")
    assert capsys.readouterr().out.split() == ["no", "jobs", "no", "workers"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "needs a command"),
        ("nonsense", "invalid choice: 'nonsense'"),
        ("logs", "logs needs a job's id"),
        ("cancel", "cancel needs a job's id"),
        ("attach jnothing", "UnknownJob"),
        ("cancel jnothing", "with the id or the name 'jnothing'"),
        ("logs jnothing --rank x", "--rank: invalid int value"),
    ],
)
def test_wrong_commands(line: str, says: str, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    assert not _run(shell, f"%gpulayer {line}").success
    shown = "".join(capsys.readouterr())
    assert says in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("cell", "lines"),
    [
        (
            "import gpulayer\ngpulayer.CommandJob(['true'], devices=0)",
            ["InvalidSpec: A job holds at least one device per node. (asked for: devices=0)", "Ask for 1 or more whole devices."],
        ),
        (
            "gpulayer.connect('nowhere')",
            ["InvalidSpec: There is no target of this name. (asked for: target='nowhere'; found: no named targets)"],
        ),
    ],
)
def test_refusals_in_a_plain_cell_show_no_internals(
    cell: str,
    lines: list[str],
    shell: InteractiveShell,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("gpulayer.settings.config_dir", lambda: tmp_path / "config")
    shell.user_ns["gpulayer"] = gpulayer
    assert isinstance(_run(shell, cell).error_in_exec, InvalidSpec)
    shown = capsys.readouterr().out.rstrip().splitlines()
    assert len(shown) <= 2
    assert shown[: len(lines)] == lines


def test_a_failed_job_in_a_plain_cell_shows_the_ranks_traceback(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    _run(
        shell,
        "import gpulayer\n"
        "raise gpulayer.JobFailed('Job j1 failed.', fix='no', details={'job_id': 'j1', 'failure': {'rank': 3}, "
        "'traceback': 'Traceback (most recent call last):\\nValueError: bad\\n'})",
    )
    assert capsys.readouterr().out.rstrip().splitlines() == [
        "JobFailed: Job j1 failed.",
        "",
        "Traceback (most recent call last):",
        "ValueError: bad",
        "",
        "All its output: %gpulayer logs j1 --rank 3",
    ]


def test_unloading_takes_the_magics_away_and_records_no_more(shell: InteractiveShell) -> None:
    recorder = recorder_of(shell)
    gpulayer.unload_ipython_extension(shell)
    gpulayer.unload_ipython_extension(shell)
    assert (shell.find_cell_magic("gpulayer"), shell.find_line_magic("gpulayer"), shell.find_line_magic("%gpulayer")) == (None, None, None)
    _run(shell, "x = 1")
    assert recorder.history.runs == []
    gpulayer.load_ipython_extension(shell)
    assert shell.find_cell_magic("gpulayer") is not None
    _run(shell, "y = 2")
    assert [run.raw for run in recorder_of(shell).history.runs] == ["x = 1", "y = 2"]


def test_help_lists_every_option(shell: InteractiveShell) -> None:
    document = shell.find_cell_magic("gpulayer").__doc__
    options = {option for action in cell_parser()._actions for option in action.option_strings}
    assert options >= {
        "--nodes",
        "--devices",
        "--accelerator",
        "--target",
        "--name",
        "--env",
        "--input",
        "--timeout",
        "--grace",
        "--detach",
        "--dry-run",
    }
    assert all(option in document for option in options)


def test_job_through_the_embedded_control_plane(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    _run(shell, "x = 20\ndef f(a):\n    if a > 100:\n        raise ValueError(a)\n    return a + x")
    assert _run(shell, "%%gpulayer --name first\nprint('value', f(1))").success
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == "started 1 local worker × 1 CPU device"
    assert "embedded control plane" in shown.splitlines()[1]
    assert "no server found" not in shown
    assert "[rank 0] value 21" in shown
    result = _run(shell, "%%gpulayer\nf(1)\nf(101)")
    assert isinstance(result.error_in_exec, gpulayer.JobFailed)
    failure = capsys.readouterr().out.split("JobFailed: ", 1)[1].splitlines()
    assert "rank 0 (node 0, worker local-1, device cpu:0" in failure[0]
    assert failure[2:8] == [
        "Traceback (most recent call last):",
        "  Cell [3], line 3, in <module>",
        "    f(101)",
        "  Cell [1], line 4, in f",
        "    raise ValueError(a)",
        "ValueError: 101",
    ]


def test_the_cells_value_and_a_name_are_the_handle(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    result = _run(shell, "%%gpulayer --as job\nprint('said')")
    assert result.result is shell.user_ns["job"]
    assert repr(result.result).startswith(f"<Job {result.result.id} 'cell-1' succeeded after 0.")
    assert len(repr(result.result).splitlines()) == 1
    capsys.readouterr()
    _run(shell, "%gpulayer logs cell-1")
    assert capsys.readouterr().out == "[rank 0] said\n"
    failed = _run(shell, "%%gpulayer --as job\nraise SystemExit(3)")
    assert isinstance(failed.error_in_exec, gpulayer.JobFailed)
    assert shell.user_ns["job"].exit_code == 3
    assert [line.text for line in result.result.logs()] == ["said"]  # its client lives as long as the handle


def test_defaults_are_kept_checked_and_shown(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    _run(shell, "%gpulayer config nodes=2 devices=4")
    _run(shell, "%gpulayer config")
    assert capsys.readouterr().out.splitlines() == ["nodes=2", "devices=4", "view=auto"] * 2
    _run(shell, "%%gpulayer --dry-run --devices 1\nprint(1)")
    assert "It asks for 2 workers at once, each with 1 free device" in capsys.readouterr().out
    assert isinstance(_run(shell, "%gpulayer config devices=0").error_in_exec, InvalidSpec)
    assert isinstance(_run(shell, "%gpulayer config nodes=many").error_in_exec, UsageError)
    capsys.readouterr()
    _run(shell, "%gpulayer config --reset")
    assert "no defaults" in capsys.readouterr().out


def test_autoload_writes_to_the_profile(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gpulayer_jupyter.autoload.config_file", lambda shell: tmp_path / "profile_default" / "ipython_config.py")
    _run(shell, "%gpulayer autoload")
    assert str(tmp_path / "profile_default" / "ipython_config.py") in capsys.readouterr().out
    _run(shell, "%gpulayer autoload --off")
    assert "%load_ext gpulayer only" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["logs --rank 0 j1", "logs j1 --rank 0", "attach --target here j1", "cancel --force j1", "cancel j1"])
def test_options_of_a_command_stand_before_or_behind_the_job(line: str) -> None:
    assert parse_command(line).job == "j1"


@pytest.mark.parametrize("line", ["--as 2x", "--as class", "--as print", "--as get_ipython", "--as _1", "--bind browser"])
def test_names_and_bindings_that_there_are_not(line: str, shell: InteractiveShell) -> None:
    assert isinstance(_run(shell, f"%%gpulayer {line}\nprint(1)").error_in_exec, UsageError)


def test_a_job_is_bound_to_its_kernel_through_the_embedded_control_plane_too(shell: InteractiveShell) -> None:
    assert _run(shell, "%%gpulayer --bind kernel\nprint(1)").success
