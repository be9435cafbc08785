"""What `import gpulayer` adds to the start of Python: interleaved pairs of whole processes, medians."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from report import Result, print_results

METHOD = "python -c 'import gpulayer' against python -c pass: whole processes, one pair after the other, median of the differences"
TARGET_MS = 25.0


def run_seconds(code: str) -> float:
    """Wall time of one interpreter that runs `code`; it must succeed."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    options = parser.parse_args()
    pairs = 15 if options.quick else 60
    run_seconds("import gpulayer")
    measured = [(run_seconds("import gpulayer") * 1000, run_seconds("pass") * 1000) for _ in range(pairs)]
    added = statistics.median(value - reference for value, reference in measured)
    reference = statistics.median(reference for _, reference in measured)
    result = Result(
        benchmark="import_time",
        case="import",
        value=added,
        unit="ms added",
        reference="25 ms",
        reference_value=reference,
        ratio=added / TARGET_MS,
        target=1.0,
        better="lower",
        status="measured",
        n=pairs,
    )
    print_results([result], as_json=options.json, method=METHOD)


if __name__ == "__main__":
    main()
