"""Every benchmark, one after the other: two at once would measure each other."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

NOT_BENCHMARKS = frozenset(
    {
        "all",
        "bare_server",
        "browser",
        "dispatch_stages",
        "embedded",
        "load",
        "peer_tasks",
        "peers",
        "raw_calls",
        "report",
        "served",
        "startup_rank",
        "startup_runs",
        "table",
        "thread_rank",
    }
)
FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The benchmarks of this folder: every script that is no part of another."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in NOT_BENCHMARKS)


def main() -> None:
    """Run them; the exit code tells of one that failed, never of one that was slow."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--quick", action="store_true", help="under a minute each, distributed_startup under 150 s")
    made.add_argument("--results", type=Path, help="a folder: each one's --json output goes to NAME.jsonl there")
    made.add_argument("only", nargs="*", help="these alone; without any, all")
    options = made.parse_args()
    chosen = options.only or names()
    unknown = sorted(set(chosen) - set(names()))
    if unknown:
        raise SystemExit(f"There is no such benchmark: {', '.join(unknown)}. There are {', '.join(names())}.")
    failed = [name for name in chosen if not _run(name, options.results, is_quick=options.quick)]
    if failed:
        raise SystemExit(f"Failed: {', '.join(failed)}")


def _run(name: str, results: Path | None, *, is_quick: bool) -> bool:
    print(f"== {name}", file=sys.stderr, flush=True)
    argv = [sys.executable, str(FOLDER / f"{name}.py"), *(["--quick"] if is_quick else [])]
    if results is None:
        return subprocess.run(argv, check=False).returncode == 0
    results.mkdir(parents=True, exist_ok=True)
    unfinished = results / f"{name}.unfinished"
    with unfinished.open("wb") as file:
        is_good = subprocess.run([*argv, "--json"], stdout=file, check=False).returncode == 0
    unfinished.rename(results / f"{name}.jsonl") if is_good else unfinished.unlink()
    return is_good


if __name__ == "__main__":
    main()
