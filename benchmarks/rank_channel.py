"""What a rank pays for telling its job something beside its output: one call of `gpulayer.log`, in a job and outside one."""

from __future__ import annotations

import statistics
import subprocess
import sys

from report import Result, against_target, parser, percentile, print_results
from served import Server, end_on_signals, served

import gpulayer

METHOD = (
    "log_call: a rank hashes 256 KB, which lets other threads run as a training step does, and calls gpulayer.log(step=…, loss=…, lr=…);"
    " each call is timed by itself, median of all. burst: the same rank does nothing but call, so the thread that sends competes for the"
    " interpreter; the time of a round by its calls, median of the rounds. Then every row is read back and compared. outside: as log_call,"
    " in a program that is no job, where the call only checks what it is given"
)
STEPS = {"full": 20_000, "quick": 5_000, "tiny": 50}
ROUNDS = {"full": 20, "quick": 5, "tiny": 1}
BURST = 5_000
TARGET_US = 5.0
PROGRAM = f"""
import hashlib, sys, time, gpulayer
steps, rounds = int(sys.argv[1]), int(sys.argv[2])
work = bytes(256 * 1024)
calls = []
for step in range(steps):
    hashlib.sha256(work)
    began = time.perf_counter()
    gpulayer.log(step=step, loss=0.5, lr=0.001)
    calls.append((time.perf_counter() - began) * 1e6)
print(*sorted(calls))
bursts = []
for number in range(rounds):
    time.sleep(0.3)  # what a call costs is asked, not whether the channel keeps up with nothing but calls
    began = time.perf_counter()
    for step in range(steps + number * {BURST}, steps + (number + 1) * {BURST}):
        gpulayer.log(step=step, loss=0.5, lr=0.001)
    bursts.append((time.perf_counter() - began) / {BURST} * 1e6)
print(*bursts)
"""


def main() -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args()
    end_on_signals()
    steps, rounds = STEPS[options.size], ROUNDS[options.size]
    with served(workers=1) as server:
        calls, bursts = in_job(server, steps, rounds)
    rows = steps + rounds * BURST
    results = [
        result("log_call", calls, f"two metrics a call; all {rows} rows read back; 99 % below {percentile(calls, 0.99):.1f} µs"),
        result("log_call.burst", bursts, f"rounds of {BURST} calls"),
        result("log_call.outside", outside(steps)[0], "no job"),
    ]
    print_results(results, as_json=options.json, method=METHOD)


def in_job(server: Server, steps: int, rounds: int) -> list[list[float]]:
    """Microseconds a call, in a rank: for each single one, and for each round of a burst."""
    source = server.folder / "source"
    source.mkdir()
    (source / "log_calls.py").write_text(PROGRAM)
    args = [str(steps), str(rounds)]
    job = server.client.submit(
        gpulayer.DistributedJob(script=str(source / "log_calls.py"), args=args, launcher="direct", accelerator="cpu")
    ).wait()
    assert job.status.state is gpulayer.JobState.SUCCEEDED, job.status
    table = job.metrics()
    assert table.column("step") == list(range(steps + rounds * BURST)), table
    assert set(table.column("loss")) == {0.5}
    return figures([line.text for line in job.logs() if line.stream == "stdout"])


def outside(steps: int) -> list[list[float]]:
    """The same without a job."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(steps), "0"], check=True, capture_output=True, text=True)
    return figures(done.stdout.splitlines())


def figures(lines: list[str]) -> list[list[float]]:
    """The figures that the program printed."""
    calls, bursts = lines
    return [[float(word) for word in calls.split()], [float(word) for word in bursts.split()]]


def result(case: str, took: list[float], detail: str) -> Result:
    """Against the target."""
    return Result(
        benchmark="rank_channel",
        case=case,
        unit="µs",
        better="lower",
        status="measured",
        n=len(took),
        detail=detail,
        **against_target(statistics.median(took), TARGET_US),
    )


if __name__ == "__main__":
    main()
