"""What GPUlayer adds around a job that does nothing: one job on an idle worker, and a burst of them on several.

The floor is `subprocess.run([sys.executable, "-c", "pass"])`, run in the same process before each repeat of each case. Where
the time goes is in `dispatch_stages.py` (`--stages`), the peers are in `peers.py` (`--peers`).
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from embedded import embedded_workers
from peers import check_peers, peer_cases
from report import Result, median_ratio, parser, print_results
from served import COLD, WARM, check_start, end_on_signals, served

import gpulayer

METHOD = (
    "from submit until wait() returns, python -c pass (cold) or python -c with code not seen before, whose nonce is read back from the"
    " stored logs afterwards (warm); that each job started so is asserted; each repeat right after one of the floor, median of the ratios;"
    " one task per worker"
)
SINGLE_TARGETS = {"single.cold.embedded": 1.10, "single.cold.http": 1.25, "single.warm.http": 0.5}
BURST_TARGETS = {"burst.cold.http": 0.85, "burst.warm.http": 1.5}
REPEATS = {"full": (40, 7), "quick": (12, 2), "tiny": (1, 1)}
"""Of one job, of a burst."""

Seconds = float


@dataclass
class Case:
    """One case with its repeats.

    Args:
        run: does it once and returns how long it took; success is asserted before that.
        jobs: how many jobs that is.
    """

    name: str
    run: Callable[[], Seconds]
    jobs: int = 1
    took: list[Seconds] = field(default_factory=list)
    floor: list[Seconds] = field(default_factory=list)


def main() -> None:
    """Measure and print."""
    options = _options()
    end_on_signals()
    singles, bursts = REPEATS[options.size]
    results: list[Result] = []
    with _clients(embedded=not options.http, workers=options.workers) as clients:
        single = [Case(f"single.{name}", lambda name=name: one_job(clients[name], is_warm="warm" in name)) for name in clients]
        burst = [
            Case(f"burst.{name}", lambda name=name: burst_of_jobs(clients[name], options.jobs, is_warm="warm" in name), options.jobs)
            for name in clients
            if name.endswith("http")
        ]
        measure(single, singles, bare_process)
        measure(burst, bursts, lambda: bare_burst(options.jobs, options.workers))
        results += [single_result(case, SINGLE_TARGETS.get(case.name)) for case in single]
        results += [burst_result(case, options.workers, BURST_TARGETS.get(case.name)) for case in burst]
    if options.stages:
        from dispatch_stages import stage_results

        results += stage_results(repeats=singles, over_http=(True,) if options.http else (False, True))
    failed = [name for name in options.peers if not _measure_peer(name, options, results)]
    print_results(results, as_json=options.json, method=METHOD)
    if failed:
        raise SystemExit(f"Not measured, for what is said above: {', '.join(failed)}")


def _measure_peer(name: str, options: argparse.Namespace, results: list[Result]) -> bool:
    """Add a peer's results; False where it failed, which is said and takes nothing from the others."""
    singles, bursts = REPEATS[options.size]
    try:
        for cases in peer_cases(name, jobs=options.jobs, workers=options.workers):
            measure(cases.single, singles, bare_process)
            measure(cases.burst, bursts, lambda: bare_burst(options.jobs, options.workers))
            results += [single_result(case, None) for case in cases.single]
            results += [burst_result(case, options.workers, None) for case in cases.burst]
    except Exception:
        traceback.print_exc()
        return False
    return True


def measure(cases: Sequence[Case], repeats: int, floor: Callable[[], Seconds]) -> None:
    """Run every case `repeats` times, in turn, each after its own repeat of the floor; the first round is not counted."""
    for number in range(repeats + 1):
        for case in cases:
            reference, took = floor(), case.run()
            if number > 0:
                case.floor.append(reference)
                case.took.append(took)


def bare_process() -> Seconds:
    """The floor: Python started by hand."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - began


def bare_burst(jobs: int, threads: int) -> Seconds:
    """The floor of a burst: as many threads as there are workers, each starting one Python after the other."""
    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: bare_process(), range(jobs)))
    return time.perf_counter() - began


def one_job(client: gpulayer.Client, *, is_warm: bool) -> Seconds:
    """One job from submit until `wait()` returns."""
    return burst_of_jobs(client, 1, is_warm=is_warm)


def burst_of_jobs(client: gpulayer.Client, count: int, *, is_warm: bool) -> Seconds:
    """All jobs submitted one after the other, then waited for."""
    nonces = [uuid.uuid4().hex for _ in range(count)]
    specs = [gpulayer.CommandJob(argv=("python", "-c", f"print({nonce!r})" if is_warm else "pass"), accelerator="cpu") for nonce in nonces]
    began = time.perf_counter()
    jobs = [client.submit(spec) for spec in specs]
    for job in jobs:
        job.wait()
    took = time.perf_counter() - began
    for job, nonce in zip(jobs, nonces, strict=True):
        assert job.status.state is gpulayer.JobState.SUCCEEDED, job.status
        printed = [line.text for line in job.logs()]
        assert printed == ([nonce] if is_warm else []), printed
        check_start(job.status, is_warm=is_warm)
    return took


def single_result(case: Case, target: float | None) -> Result:
    return Result(
        benchmark="dispatch",
        case=case.name,
        value=statistics.median(case.took) * 1000,
        unit="ms",
        reference="subprocess.run",
        reference_value=statistics.median(case.floor) * 1000,
        ratio=median_ratio(case.took, case.floor),
        target=target,
        better="lower",
        status="measured",
        n=len(case.took),
    )


def burst_result(case: Case, workers: int, target: float | None) -> Result:
    rates, floor_rates = [case.jobs / took for took in case.took], [case.jobs / took for took in case.floor]
    return Result(
        benchmark="dispatch",
        case=case.name,
        value=statistics.median(rates),
        unit="jobs/s",
        reference=f"{workers} threads of subprocess.run",
        reference_value=statistics.median(floor_rates),
        ratio=median_ratio(rates, floor_rates),
        target=target,
        better="higher",
        status="measured",
        n=len(case.took),
        detail=f"{case.jobs} jobs on {workers} workers",
    )


@contextlib.contextmanager
def _clients(*, embedded: bool, workers: int) -> Iterator[dict[str, gpulayer.Client]]:
    """A client for each way that a job can take, each with workers of its own."""
    with contextlib.ExitStack() as stack:
        clients: dict[str, gpulayer.Client] = {}
        if embedded:
            clients["cold.embedded"] = stack.enter_context(embedded_workers(workers, env=COLD))
        clients["cold.http"] = stack.enter_context(served(workers=workers, env=COLD)).client
        clients["warm.http"] = stack.enter_context(served(workers=workers, env=WARM)).client
        yield clients


def _options() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--jobs", type=int, default=40, help="how many jobs a burst has")
    made.add_argument("--workers", type=int, default=4, help="how many workers there are, of one task each")
    made.add_argument("--http", action="store_true", help="only through a real Jupyter server; without it, also embedded")
    made.add_argument("--stages", action="store_true", help="also where each millisecond goes, in six stages")
    made.add_argument(
        "--peers", type=lambda text: text.split(","), default=[], help="also these, in the same run: ray,dask,ipyparallel,parsl"
    )
    options = made.parse_args()
    check_peers(options.peers)
    return options


if __name__ == "__main__":
    main()
