"""How a benchmark states a result: one object a line with `--json`, else a readable line; method and machine beside it.

`status` is one of the marks that CONTRIBUTING.md defines: measured, simulated, hardware-validated. What a person reads
beside `--json` goes to stderr, so that stdout holds the objects alone.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

Status = Literal["measured", "simulated", "hardware-validated"]

SIZES = ("full", "quick", "tiny")
"""How much is done: what is published, what takes under a minute, and what only shows that the benchmark runs."""
_PACKAGES = ("gpulayer", "jupyter-server", "tornado", "httpx", "sqlalchemy", "ray", "dask", "distributed", "ipyparallel", "parsl", "torch")


@dataclass(frozen=True, kw_only=True)
class Result:
    """One figure against its reference, both measured in the same run.

    Args:
        value: median over the repeats, in `unit`.
        reference: what it is compared with, measured side by side; where there is nothing to compare with, the target itself.
        target: what `ratio` should not exceed (`better="lower"`) or should reach (`better="higher"`); None: nothing is asked of it.
        limit: what `value` itself may not exceed either, whatever the ratio.
        n: repeats of each side.
        detail: what belongs to the figure besides, for people.
    """

    benchmark: str
    case: str
    value: float
    unit: str
    reference: str
    reference_value: float
    ratio: float
    target: float | None
    better: Literal["lower", "higher"]
    status: Status
    n: int
    limit: float | None = None
    detail: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None where there is none."""
        if self.target is None:
            return None
        is_reached = self.ratio <= self.target if self.better == "lower" else self.ratio >= self.target
        return is_reached and (self.limit is None or self.value <= self.limit)


def against_target(value: float, target: float) -> dict[str, float | str]:
    """The fields of a result that is held against a fixed number: the ratio is to that number, and 1 is the target."""
    return {"value": value, "reference": "the target", "reference_value": target, "ratio": value / target, "target": 1.0}


@functools.cache
def machine() -> dict[str, str | int | None]:
    """What the figures were measured on."""
    return {
        "system": platform.platform(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": _memory_gb(),
        "python": platform.python_version(),
        "versions": ", ".join(f"{name} {version}" for name in _PACKAGES if (version := _version(name)) is not None),
    }


def median_ratio(values: Sequence[float], references: Sequence[float]) -> float:
    """Median of the ratios pair by pair: a machine that drifts moves both sides of a pair."""
    return statistics.median(value / reference for value, reference in zip(values, references, strict=True))


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` of all samples do not exceed."""
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--json", action="store_true", help="one object a line on stdout")
    made.add_argument("--quick", dest="size", action="store_const", const="quick", default="full", help="under a minute: fewer repeats")
    made.add_argument("--tiny", dest="size", action="store_const", const="tiny", help=argparse.SUPPRESS)  # what the tests run
    return made


def print_results(results: Sequence[Result], *, as_json: bool, method: str) -> None:
    """Print every result; benchmarks report and never fail on time."""
    aside = sys.stderr if as_json else sys.stdout
    print(method, file=aside)
    print(", ".join(f"{key} {value}" for key, value in machine().items()), file=aside)
    for result in results:
        print(as_object(result) if as_json else as_line(result))


def as_object(result: Result) -> str:
    """The result as the one line of `--json`."""
    return json.dumps(asdict(result) | {"met": result.met, "machine": machine()}, ensure_ascii=False)


def as_line(result: Result) -> str:
    """The result for people."""
    mark = "no target" if result.target is None else f"target {result.target:g}, {'met' if result.met else 'missed'}"
    detail = f"; {result.detail}" if result.detail else ""
    return (
        f"{result.benchmark} {result.case}: {result.value:.4g} {result.unit}, {result.ratio:.3f} × {result.reference}"
        f" of {result.reference_value:.4g} ({mark}; {result.status}, n={result.n}{detail})"
    )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


def _memory_gb() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
