"""Each benchmark really runs once, in its smallest form, and prints what `--json` promises."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FIELDS: dict[str, Any] = {
    "benchmark": str,
    "case": str,
    "value": int | float,
    "unit": str,
    "reference": str,
    "reference_value": int | float,
    "ratio": int | float,
    "target": int | float | None,
    "better": str,
    "met": bool | None,
    "status": str,
    "n": int,
    "limit": int | float | None,
    "detail": str,
    "machine": dict,
}
STARTUP_STAGES = ("dispatch", "start", "import", "group", "all_reduce", "ddp", "shutdown", "completion")
CASES: dict[str, tuple[list[str], set[str]]] = {
    "dispatch": (
        ["--jobs", "2", "--workers", "1"],
        {"single.cold.embedded", "single.cold.http", "single.warm.http", "burst.cold.http", "burst.warm.http"},
    ),
    "distributed_startup": (
        ["--launchers", "direct,warm", "--stages"],
        {"1x2.direct", "1x2.warm", "zygote", "overhead"}
        | {f"stage.1x2.{launcher}.{stage}" for launcher in ("direct", "warm") for stage in STARTUP_STAGES},
    ),
    "export": ([], {"cold", "first", "again", "unchanged"}),
    "http_calls": ([], {"cpu.urllib3", "cpu.http.client", "cpu.direct", "cpu.transport"}),
    "import_time": ([], {"import", "first_use"}),
    "log_throughput": ([], {"job_slowdown", "job_slowdown.buffered", "ingest"}),
    "long_polls": (["--workers", "10"], {"held", "bytes_each", "wake_one.p99", "wake_one.order.p99"}),
    "notebook_traffic": ([], {"bytes", "saved", "delay", "save"}),
    "rank_channel": ([], {"log_call", "log_call.burst", "log_call.outside"}),
    "rank_logs": ([], {"frame.scroll", "frame.search", "frame.output", "switch"}),
    "responsiveness": ([], {"status.p99", "kernel_echo.p99"}),
    "store_writes": (
        [],
        {f"claim.{mode}.{group}" for mode in ("off", "normal", "full", "extra") for group in (1, 8, 64)} | {"claim.normal.and_sync"},
    ),
    "thread_sharing": ([], {"1x1.w32.cores", "1x1.w32.unset"}),
    "transfer": ([], {"put", "get", "put.files", "get.files", "cached"}),
}
STAGES = ("submit", "dispatch", "prepare", "run", "logs", "finish")


@dataclass
class Run:
    """A benchmark that runs: what it prints, and the only folder that it may make anything in."""

    process: subprocess.Popen[bytes]
    folder: Path
    temporary: Path

    def results(self) -> list[dict[str, Any]]:
        """What it prints; nothing that it started or made is left then."""
        returncode = self.process.wait(240)
        assert returncode == 0, (self.folder / "stderr").read_text()[-4000:]
        assert list(self.temporary.iterdir()) == []
        assert started_below(self.temporary) == []
        return [json.loads(line) for line in (self.folder / "stdout").read_text().splitlines()]


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """Those benchmarks that a test is going to ask for, all at once: the start of a server is most of what each of them takes."""
    asked = {
        item.callspec.params.get("name")
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    }
    started: dict[str, Run] = {}
    try:
        for name in CASES.keys() & asked:
            folder = tmp_path_factory.mktemp("b")
            (temporary := folder / "t").mkdir()
            with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
                argv = [sys.executable, BENCHMARKS / f"{name}.py", "--tiny", "--json", *CASES[name][0]]
                process = subprocess.Popen(argv, stdout=out, stderr=err, env=os.environ | {"TMPDIR": str(temporary)})
            started[name] = Run(process, folder, temporary)
        yield started
    finally:
        for run in started.values():
            if run.process.poll() is None:
                run.process.terminate()
            run.process.wait(60)


def started_below(folder: Path) -> list[list[str]]:
    """The processes that name this folder."""
    found = [one.info["cmdline"] or [] for one in psutil.process_iter(["cmdline"])]
    return [argv for argv in found if any(str(folder) in word for word in argv)]


@pytest.mark.e2e
@pytest.mark.parametrize("name", CASES)
def test_prints_every_case_with_every_field(name: str, runs: dict[str, Run]) -> None:
    cases = CASES[name][1]
    results = runs[name].results()
    assert {result["case"] for result in results} == cases
    assert len(results) == len(cases)
    for result in results:
        assert result.keys() == FIELDS.keys()
        assert [field for field, kind in FIELDS.items() if not isinstance(result[field], kind)] == []
        assert result["benchmark"] == name
        assert result["better"] in ("lower", "higher")
        assert result["status"] == "measured"
        # A stage lies between borders of two clocks, of which one is estimated by the other: a short one may come out below 0.
        assert result["value"] >= 0 or result["case"].startswith("stage.")
        assert result["n"] >= 1


@pytest.mark.e2e
def test_stages_add_up_to_the_whole(tmp_path: Path) -> None:
    code = (
        f"import sys, json; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        "from dispatch_stages import stage_results\n"
        "results = stage_results(repeats=1, over_http=(False,), starts=('cold',))\n"
        "print(json.dumps([[one.case, one.value, one.reference_value] for one in results]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"TMPDIR": str(tmp_path)}, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    stages = json.loads(done.stdout)
    assert [case for case, _, _ in stages] == [f"stage.cold.embedded.{stage}" for stage in STAGES]
    assert all(value >= 0 for _, value, _ in stages)
    assert sum(value for _, value, _ in stages) == pytest.approx(stages[0][2])


@pytest.mark.e2e
def test_what_it_started_ends_with_it_when_it_is_told_to_end(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        "from served import end_on_signals, served\n"
        "end_on_signals()\n"
        "with served(workers=1):\n"
        "    print('up', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"TMPDIR": str(tmp_path)}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert started_below(tmp_path)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert started_below(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--peers", "slurm"], "--peers takes ray, dask, ipyparallel, parsl; not slurm."),
        (["--peers", "ray"], "pip install 'gpulayer[peers]'"),
    ],
)
def test_a_peer_that_is_not_there_is_said_before_anything_is_measured(options: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['ray'] = None\n")
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "dispatch.py", *options],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stdout == ""


def test_too_few_open_files_are_an_error_that_says_so(tmp_path: Path) -> None:
    code = (
        f"import resource, sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        "from served import raise_open_files\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))\n"
        "raise_open_files(400)\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (400, 512)\n"
        "raise_open_files(10_500)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "10500 open files are needed and the system allows 512" in done.stderr
