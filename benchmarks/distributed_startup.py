"""What a distributed job costs before and after its own work: each launcher, several shapes, against `torchrun` by hand.

What the ranks run is in `startup_rank.py`, how one start is run, checked and split in `startup_runs.py`. Where NVIDIA GPUs are
seen, the same script also runs on them with NCCL, in the shapes that they can hold (`1x1.cuda.direct`).
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from report import Result, Status, against_target, median_ratio, parser, print_results
from served import end_on_signals, environment, served, start_workers, temporary_folder
from startup_runs import STAGES, OtherLauncher, Shape, Start, start_as_job, start_by_hand

import gpulayer
from gpulayer.hardware.nvidia import find_cuda_devices

METHOD = (
    "seconds from submit until wait() returned, through a real Jupyter server with two workers on this machine, against torchrun by hand"
    " (--standalone, or one for each node at once with --rdzv-backend c10d) from its start until the last one has ended; in turns, each"
    " launcher once after each start by hand, median of the pairs' ratios; each rank imports PyTorch, joins the group, reduces once, makes"
    " one step through DDP and leaves the group; that sums, gradients and the nonce are right and that the ranks were started by the"
    " launcher asked for is asserted; one start of each launcher before is not counted (zygote is what the first warm one took). overhead:"
    " from submit until the process is told what to run, and from its end until wait() returned, of 1x2"
)
LAUNCHERS = ("torchrun", "direct", "warm")
TARGETS = {"direct": 0.5, "warm": 0.05}
OVERHEAD_MS = 20.0
SHAPES = (Shape(1, 2), Shape(2, 2), Shape(2, 4))
ROUNDS = {"full": (7, 5, 3), "quick": (1, 1, 1), "tiny": (1,)}
"""Of each shape; a size that has no number for a shape leaves it out."""
CUDA_ROUNDS = {"full": 7, "quick": 1, "tiny": 1}
WARM_UPS = 5
"""A zygote that is not ready when it is asked for the first time is when it is asked for the last."""


@dataclass
class Case:
    """One launcher in one shape, with its starts and the one by hand before each."""

    shape: Shape
    launcher: str
    starts: list[Start] = field(default_factory=list)
    by_hand: list[Start] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.shape.name}.{self.launcher}"


@dataclass
class Measured:
    """What came of a run: the cases, what the first warm start took, and what could not be measured, with the reason."""

    cases: list[Case] = field(default_factory=list)
    zygotes: list[tuple[Shape, float, Start]] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def main() -> None:
    """Measure and print."""
    options = _options()
    end_on_signals()
    measured = Measured()
    shapes = dict(zip(SHAPES, ROUNDS[options.size], strict=False))
    # DistributedDataParallel imports parts of PyTorch that make a folder for what they would compile; on both sides it is this one.
    with temporary_folder() as folder, environment(TORCHINDUCTOR_CACHE_DIR=str(folder / "compiled")):
        with served() as server:
            start_workers(server.client, max(shape.nodes for shape in shapes), cpu_devices=max(shape.devices for shape in shapes))
            measure(server.client, shapes, options.launchers, measured)
        if cuda_shapes := _cuda_shapes(CUDA_ROUNDS[options.size]):
            with served() as server:
                server.client.ensure_local_workers(1, cpu_devices=1)  # of all the machine's GPUs
                measure(server.client, cuda_shapes, options.launchers, measured)
    results = [result(case) for case in measured.cases]
    results += [zygote_result(*zygote) for zygote in measured.zygotes]
    results += overhead_results(measured.cases)
    if options.stages:
        results += [stage for case in measured.cases for stage in stage_results(case)]
    print_results(results, as_json=options.json, method=METHOD)
    if measured.failed:
        raise SystemExit("\n".join(["Not measured:", *(f"  {name}: {reason}" for name, reason in measured.failed.items())]))


def measure(client: gpulayer.Client, shapes: dict[Shape, int], launchers: Sequence[str], measured: Measured) -> None:
    """Every shape as often as it says, its launchers in turn; before all, one start of each launcher that is not counted."""
    smallest, largest = (choose(shapes, key=lambda shape: shape.world_size) for choose in (min, max))
    # A zygote is each worker's own, so the first warm start takes all of them; the others leave nothing behind but files in memory.
    first = {launcher: largest if launcher == "warm" else smallest for launcher in launchers}
    ready = [launcher for launcher, shape in first.items() if _warm_up(client, shape, launcher, measured)]
    for shape, rounds in shapes.items():
        cases = [Case(shape, launcher) for launcher in ready]
        if shape is not largest and "warm" in ready:
            start_as_job(client, shape, "warm")  # as many ranks as this shape has may have to be parked first
        for _ in range(rounds):
            by_hand = start_by_hand(shape)
            for case in cases:
                case.by_hand.append(by_hand)
                case.starts.append(start_as_job(client, shape, case.launcher))
        measured.cases += cases


def _warm_up(client: gpulayer.Client, shape: Shape, launcher: str, measured: Measured) -> bool:
    """The first starts, on every worker; whether this launcher can be measured here."""
    took, reason = 0.0, ""
    for _ in range(WARM_UPS):
        try:
            start = start_as_job(client, shape, launcher)
        except OtherLauncher as error:
            took, reason = took + error.seconds, str(error)
            continue
        if launcher == "warm":
            measured.zygotes.append((shape, took + start.seconds, start))
        return True
    measured.failed[f"{launcher} on {shape.accelerator}"] = reason
    return False


# ---- results


def result(case: Case) -> Result:
    values, references = [start.seconds for start in case.starts], [start.seconds for start in case.by_hand]
    return Result(
        benchmark="distributed_startup",
        case=case.name,
        value=statistics.median(values),
        unit="s",
        reference="torchrun by hand",
        reference_value=statistics.median(references),
        ratio=median_ratio(values, references),
        target=TARGETS.get(case.launcher),
        better="lower",
        status=_status(case.shape),
        n=len(values),
        detail=f"{_in_words(case.starts)}; by hand {_in_words(case.by_hand)}",
    )


def zygote_result(shape: Shape, seconds: float, start: Start) -> Result:
    """The first warm start of all, against itself: it is made once for a worker, and no job of a kind compares."""
    return Result(
        benchmark="distributed_startup",
        case="zygote" + (f".{shape.accelerator}" if shape.accelerator != "cpu" else ""),
        value=seconds,
        unit="s",
        reference="itself",
        reference_value=seconds,
        ratio=1.0,
        target=None,
        better="lower",
        status=_status(shape),
        n=1,
        detail=f"the first warm start in {shape.name}, until its end; {_in_words([start])}",
    )


def overhead_results(cases: Sequence[Case]) -> Iterator[Result]:
    """GPUlayer's own dispatch and completion in the smallest shape, the launchers that are its own together."""
    own = [case for case in cases if case.shape == SHAPES[0] and case.launcher in TARGETS] or [
        case for case in cases if case.shape == SHAPES[0]
    ]
    if own:
        each = "; ".join(f"{case.name} {_own_ms(case.starts):.1f} ms" for case in cases)
        yield Result(
            benchmark="distributed_startup",
            case="overhead",
            unit="ms",
            better="lower",
            status="measured",
            n=sum(len(case.starts) for case in own),
            detail=each,
            **against_target(_own_ms([start for case in own for start in case.starts]), OVERHEAD_MS),
        )


def stage_results(case: Case) -> Iterator[Result]:
    """Each stage's median, beside the median of the same stage by hand; `ratio` is its share of the whole."""
    whole = statistics.median(start.seconds for start in case.starts)
    for stage in _stages(case.starts):
        took = _median(case.starts, stage)
        by_hand = f"{_median(case.by_hand, stage) * 1000:.1f} ms by hand; " if stage in case.by_hand[0].stages else ""
        yield Result(
            benchmark="distributed_startup",
            case=f"stage.{case.name}.{stage}",
            value=took * 1000,
            unit="ms",
            reference="the whole",
            reference_value=whole * 1000,
            ratio=took / whole,
            target=None,
            better="lower",
            status=_status(case.shape),
            n=len(case.starts),
            detail=f"{by_hand}{STAGES[stage]}",
        )


def _in_words(starts: Sequence[Start]) -> str:
    return ", ".join(f"{stage} {_median(starts, stage) * 1000:.0f}" for stage in _stages(starts)) + " ms"


def _stages(starts: Sequence[Start]) -> list[str]:
    return [stage for stage in STAGES if stage in starts[0].stages]


def _median(starts: Sequence[Start], stage: str) -> float:
    return statistics.median(start.stages[stage] for start in starts)


def _own_ms(starts: Sequence[Start]) -> float:
    return statistics.median(start.own for start in starts) * 1000


def _status(shape: Shape) -> Status:
    return "measured" if shape.accelerator == "cpu" else "hardware-validated"


# ---- options


def _cuda_shapes(rounds: int) -> dict[Shape, int]:
    """What this machine's GPUs can hold on one node: one rank, and two where there are two."""
    gpus = len(find_cuda_devices())
    return {Shape(1, devices, "cuda"): rounds for devices in (1, 2) if devices <= gpus}


def _options() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--stages", action="store_true", help="also each stage of each case as a result of its own")
    made.add_argument(
        "--launchers", type=lambda text: text.split(","), default=list(LAUNCHERS), help=f"these alone: {','.join(LAUNCHERS)}, or some"
    )
    options = made.parse_args()
    unknown = sorted(set(options.launchers) - set(LAUNCHERS))
    if unknown:
        sys.exit(f"--launchers takes {', '.join(LAUNCHERS)}; not {', '.join(unknown)}.")
    return options


if __name__ == "__main__":
    main()
