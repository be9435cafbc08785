"""How a benchmark states a result: one object a line with `--json`, else a readable line; method and machine beside it.

`status` is one of the marks that CONTRIBUTING.md defines: measured, simulated, hardware-validated.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["measured", "simulated", "hardware-validated"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """One figure against its reference, both measured in the same run.

    Args:
        value: median over the repeats, in `unit`.
        reference: what it is compared with, measured side by side.
        target: what `ratio` should not exceed (`better="lower"`) or should reach (`better="higher"`).
        n: repeats of each side.
    """

    benchmark: str
    case: str
    value: float
    unit: str
    reference: str
    reference_value: float
    ratio: float
    target: float
    better: Literal["lower", "higher"]
    status: Status
    n: int

    @property
    def met(self) -> bool:
        return self.ratio <= self.target if self.better == "lower" else self.ratio >= self.target


def machine() -> dict[str, str | int | None]:
    """What the figures were measured on."""
    return {"system": platform.platform(), "machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}


def median_ratio(values: list[float], references: list[float]) -> float:
    """Median of the ratios pair by pair: a machine that drifts moves both sides of a pair."""
    return statistics.median(value / reference for value, reference in zip(values, references, strict=True))


def print_results(results: list[Result], *, as_json: bool, method: str) -> None:
    """Print every result; benchmarks report and never fail on time."""
    if not as_json:
        print(method)
        print(", ".join(f"{key} {value}" for key, value in machine().items()))
    for result in results:
        if as_json:
            print(json.dumps(dict(asdict(result).items()) | {"met": result.met}))
        else:
            mark = "met" if result.met else "missed"
            print(
                f"{result.benchmark} {result.case}: {result.value:.4g} {result.unit}, {result.ratio:.3f} × {result.reference}"
                f" (target {result.target}, {mark}; {result.status}, n={result.n})"
            )
