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
from pathlib import Path
from typing import Any

from report import Result, median_ratio, parser, print_results
from served import end_on_signals, temporary_folder

METHOD = (
    "median step of rank 0 in each turn, three-layer MLP, batch 64, SGD, gloo between the ranks; the settings in turn in the same"
    " processes (torch.set_num_threads, which is what OMP_NUM_THREADS sets at a start), several rounds, median of the ratios to one thread"
    " in the same round. cores: cores // ranks of a node; unset: PyTorch's own choice. A layout is nodes x ranks; the nodes are on this"
    " machine, so 2x2 has four ranks on its cores"
)
SCRIPT = Path(__file__).parent / "thread_rank.py"
WIDTHS = {"full": (32, 256, 1024, 2048), "quick": (32, 256, 1024, 2048), "tiny": (32,)}
LAYOUTS = {"full": ((1, 1), (1, 2), (2, 2)), "quick": ((1, 1), (1, 2), (2, 2)), "tiny": ((1, 1),)}
ROUNDS = {"full": 10, "quick": 2, "tiny": 1}
TURN_SECONDS = {"full": 1.0, "quick": 0.1, "tiny": 0.01}
SETTINGS = ("one", "cores", "unset")
"""The first is the reference."""
RUN_SECONDS = 1800.0
"""More than any layout takes; what runs longer hangs."""


def main() -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args()
    end_on_signals()
    size, results = options.size, []
    for layout in LAYOUTS[size]:
        seen = run(layout, widths=WIDTHS[size], rounds=ROUNDS[size], seconds=TURN_SECONDS[size])
        results += [result(layout, seen, width, setting) for width in WIDTHS[size] for setting in range(1, len(SETTINGS))]
    print_results(results, as_json=options.json, method=METHOD)


def run(layout: tuple[int, int], **how: Any) -> dict[str, Any]:
    """All ranks of the layout, and what the first one measured."""
    nodes, devices = layout
    ranks = nodes * devices
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    argv = [sys.executable, str(SCRIPT), json.dumps(how | {"threads": [1, max(1, cores // devices), 0]})]
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    with temporary_folder() as folder, contextlib.ExitStack() as ending:
        env |= {"WORLD_SIZE": str(ranks), "GPULAYER_BENCHMARK_STORE": str(folder / "store"), "CUDA_VISIBLE_DEVICES": ""}
        env["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "compiled")  # a folder that an optimizer's or DDP's imports make
        processes = [_started(ending, argv, env | {"RANK": str(rank)}) for rank in range(ranks)]
        printed = [process.communicate(timeout=RUN_SECONDS)[0] for process in processes]
    codes = [process.returncode for process in processes]
    assert codes == [0] * ranks, f"the ranks left with {codes}"
    seen: dict[str, Any] = json.loads(printed[0])
    assert seen["world_size"] == ranks, seen
    return seen


def _started(ending: contextlib.ExitStack, argv: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    process = ending.enter_context(subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE))
    ending.callback(process.kill)  # does nothing to one that has ended
    return process


def result(layout: tuple[int, int], seen: dict[str, Any], width: int, setting: int) -> Result:
    """A setting's step against that with one thread."""
    nodes, devices = layout
    rounds = seen["took"][str(width)]
    values, references = [times[setting] for times in rounds], [times[0] for times in rounds]
    is_same = seen["threads"][setting] == seen["threads"][0]
    return Result(
        benchmark="thread_sharing",
        case=f"{nodes}x{devices}.w{width}.{SETTINGS[setting]}",
        value=statistics.median(values) * 1e6,
        unit="µs",
        reference="one thread a rank",
        reference_value=statistics.median(references) * 1e6,
        ratio=median_ratio(values, references),
        target=None,
        better="lower",
        status="measured",
        n=len(rounds),
        detail=f"threads of each rank: {seen['threads'][setting]}"
        + (", as in the reference: how far the machine itself varies" if is_same else ""),
    )


if __name__ == "__main__":
    main()
