"""Whether ranks on one machine should share its cores: a training step with one thread a rank, as torchrun sets it, against
cores // ranks of them and against what PyTorch takes when nobody says anything (all cores, in each rank).

The ranks are processes of this script's own, so that nothing of a launcher is at work; what they run is in `thread_rank.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from report import Result, median_ratio, parser, print_results
from served import end_on_signals, temporary_folder

METHOD = (
    "median step of rank 0, three-layer MLP, batch 64, SGD, gloo between the ranks; new processes with OMP_NUM_THREADS as the case says"
    " (cores: cores // ranks of a node; unset: PyTorch's own choice), each layout's settings in turn, ratios pair by pair to one thread"
    " in the same round. A layout is nodes x ranks; nodes are on this machine, so 2x2 has four ranks on its cores"
)
SCRIPT = Path(__file__).parent / "thread_rank.py"
WIDTHS = (32, 256, 1024, 2048)
LAYOUTS = {"full": ((1, 1), (1, 2), (2, 2)), "quick": ((1, 1), (1, 2), (2, 2)), "tiny": ((1, 1),)}
ROUNDS = {"full": 7, "quick": 1, "tiny": 1}
STEPS = {"full": 200, "quick": 40, "tiny": 2}
RUN_SECONDS = 300.0
REFERENCE = "one"
SETTINGS = (REFERENCE, "cores", "unset")


@dataclass
class Case:
    """One layout and setting, with its step times by width, and how many threads a rank then had."""

    layout: tuple[int, int]
    setting: str
    threads: int = 0
    took: dict[int, list[float]] = field(default_factory=dict)


def main() -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args()
    end_on_signals()
    widths = WIDTHS if options.size != "tiny" else WIDTHS[:1]
    results: list[Result] = []
    for layout in LAYOUTS[options.size]:
        cases = [Case(layout, setting) for setting in SETTINGS]
        for _ in range(ROUNDS[options.size]):
            for case in cases:
                run(case, STEPS[options.size], widths)
        results += [result(case, cases[0], width) for case in cases[1:] for width in widths]
    print_results(results, as_json=options.json, method=METHOD)


def run(case: Case, steps: int, widths: tuple[int, ...]) -> None:
    """All ranks of the layout once, and what they measured."""
    ranks = case.layout[0] * case.layout[1]
    argv = [sys.executable, str(SCRIPT), str(steps), *(str(width) for width in widths)]
    with temporary_folder() as folder, contextlib.ExitStack() as ending:
        env = _environment(case) | {"WORLD_SIZE": str(ranks), "GPULAYER_BENCHMARK_STORE": str(folder / "store")}
        env["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "compiled")  # a folder that an optimizer's or DDP's imports make
        processes = [_started(ending, argv, env | {"RANK": str(rank)}) for rank in range(ranks)]
        printed = [process.communicate(timeout=RUN_SECONDS)[0] for process in processes]
        codes = [process.returncode for process in processes]
    assert codes == [0] * ranks, f"the ranks left with {codes}"
    seen = json.loads(printed[0])
    assert seen["world_size"] == ranks, seen
    case.threads = seen["threads"]
    for width in widths:
        case.took.setdefault(width, []).append(seen["seconds"][str(width)])


def _environment(case: Case) -> dict[str, str]:
    """As the setting says; nothing that this process happens to have been told about threads."""
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")} | {"CUDA_VISIBLE_DEVICES": ""}
    if case.setting == "unset":
        return env
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return env | {"OMP_NUM_THREADS": str(1 if case.setting == REFERENCE else max(1, cores // case.layout[1]))}


def _started(ending: contextlib.ExitStack, argv: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    process = ending.enter_context(subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE))
    ending.callback(lambda: process.poll() is None and process.kill())
    return process


def result(case: Case, reference: Case, width: int) -> Result:
    """A setting's step against that with one thread."""
    nodes, devices = case.layout
    return Result(
        benchmark="thread_sharing",
        case=f"{nodes}x{devices}.w{width}.{case.setting}",
        value=statistics.median(case.took[width]) * 1e6,
        unit="µs",
        reference="one thread a rank",
        reference_value=statistics.median(reference.took[width]) * 1e6,
        ratio=median_ratio(case.took[width], reference.took[width]),
        target=None,
        better="lower",
        status="measured",
        n=len(case.took[width]),
        detail=f"{case.threads} threads in each of {nodes * devices} ranks"
        + (", as in the reference: what the machine itself varies by" if case.threads == reference.threads else ""),
    )


if __name__ == "__main__":
    main()
