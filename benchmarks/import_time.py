"""What `import gpulayer` adds to the start of Python: interleaved pairs of whole processes, medians."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from report import Result, against_target, parser, print_results

METHOD = "python -c 'import gpulayer' against python -c pass: whole processes, one pair after the other, median of the differences"
TARGET_MS = 25.0
FIRST_USE = "gpulayer.connect"
PAIRS = {"full": 60, "quick": 15, "tiny": 2}


def run_seconds(code: str) -> float:
    """Wall time of one interpreter that runs `code`; it must succeed."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args()
    pairs = PAIRS[options.size]
    run_seconds("import gpulayer")
    measured = [(run_seconds("import gpulayer") * 1000, run_seconds("pass") * 1000) for _ in range(pairs)]
    added = max(0.0, statistics.median(value - reference for value, reference in measured))  # below what a start varies by
    python = statistics.median(reference for _, reference in measured)
    result = Result(
        benchmark="import_time",
        case="import",
        unit="ms",
        better="lower",
        status="measured",
        n=pairs,
        detail=f"added to the {python:.1f} ms of python -c pass",
        **against_target(added, TARGET_MS),
    )
    first_use = statistics.median(run_seconds(f"import gpulayer; {FIRST_USE}") * 1000 - run_seconds("pass") * 1000 for _ in range(pairs))
    used = Result(
        benchmark="import_time",
        case="first_use",
        value=first_use,
        unit="ms",
        reference="python -c pass",
        reference_value=python,
        ratio=first_use / python,
        target=None,
        better="lower",
        status="measured",
        n=pairs,
        detail=f"added by import gpulayer; {FIRST_USE}: what the import leaves for later",
    )
    print_results([result, used], as_json=options.json, method=METHOD)


if __name__ == "__main__":
    main()
