"""What the view of rank logs costs the browser: the longest time between two frames in a scroll and a search, and a change of rank."""

from __future__ import annotations

import statistics

from browser import chromium, in_browser
from report import Result, against_target, parser, print_results

METHOD = (
    "The view of logs in a page of its own in Chromium, software rendering: 64 ranks print LINES lines each as fast as they are read, then"
    " a scripted scroll of 120 jumps, a search through all that is held, and changes of the rank. frame.*: the longest time between two"
    " frames of that part, median of the repeats; a frame of an idle page takes 16.7 ms. switch: until a rank's lines are drawn, the"
    " longest of three changes, median of the repeats"
)
LINES = {"full": 100_000, "quick": 20_000, "tiny": 500}
REPEATS = {"full": 3, "quick": 2, "tiny": 1}
RANKS = 64
TARGET_FRAME_MS, TARGET_SWITCH_MS = 50.0, 200.0


def main() -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args()
    lines, repeats = LINES[options.size], REPEATS[options.size]
    runs = in_browser("rank_logs_page.mjs", browser=chromium(), ranks=RANKS, lines=lines, repeats=repeats)["runs"]
    rows = max(run["mostRows"] for run in runs)
    detail = f"{RANKS} ranks × {lines} lines; at most {rows} rows in the page"
    results = [
        result(f"frame.{part}", [run["longest"][part] for run in runs], TARGET_FRAME_MS, detail) for part in ("scroll", "search", "output")
    ]
    switches = [max(run["took"][f"rank {rank}"] for rank in ("0", "31", "all")) for run in runs]
    print_results([*results, result("switch", switches, TARGET_SWITCH_MS, detail)], as_json=options.json, method=METHOD)


def result(case: str, values: list[float], target: float, detail: str) -> Result:
    """One part against its limit."""
    held = against_target(statistics.median(values), target)
    return Result(
        benchmark="rank_logs",
        case=case,
        unit="ms",
        better="lower",
        status="measured",
        n=len(values),
        detail=f"{detail}; worst {max(values):.0f} ms",
        **held,  # type: ignore[arg-type]
    )


if __name__ == "__main__":
    main()
