"""What one accepted change costs the store, for each value of SQLite's `synchronous`, alone and in groups.

A claim is what a worker's word costs at the least: one guarded UPDATE of one row, in a home's own database, through the writer's
connection. In a group several claims share one transaction, as those do that were queued while the one before was committed.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from report import Result, parser, print_results

from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.database import make_engine
from gpulayer.control.store.schema import prepare_home
from gpulayer.control.store.workers import put_worker, renew

METHOD = (
    "a home's metadata.db on the disk of the temporary folder; BEGIN IMMEDIATE, the guarded UPDATE of one worker's row for each claim,"
    " COMMIT; wall time of the group / its claims, median; values of `synchronous` interleaved; checkpoints included, as they come"
)
MODES = ("off", "normal", "full", "extra")
GROUPS = (1, 8, 64)
ROUNDS = {"full": 30, "quick": 8, "tiny": 1}
COMMITS = {"full": 40, "quick": 20, "tiny": 2}
WORKERS = 64


def open_store(folder: Path, mode: str) -> StoreConnection:
    """The writer's connection to a home of its own, with some workers in it."""
    connection = StoreConnection(make_engine(prepare_home(folder / mode), synchronous=mode).connect())
    fields = {
        "boot": "boot",
        "owner": "o",
        "host": "h",
        "boot_id": "h",
        "address": "127.0.0.1",
        "python": "p",
        "version": "0",
        "protocol": 1,
    }
    for number in range(WORKERS):
        put_worker(
            connection,
            f"w{number}",  # type: ignore[arg-type]
            name=f"name-{number}",
            devices=b"[]",
            frameworks=b"{}",
            local=0,
            state="alive",
            registered_at=0.0,
            last_seen_at=time.time(),
            **fields,
        )
    return connection


def commit_claims(connection: StoreConnection, count: int) -> float:
    """Seconds that one transaction with so many claims takes."""
    now = time.time()
    began = time.perf_counter()
    connection.driver.execute("BEGIN IMMEDIATE")
    for number in range(count):
        renew(connection, now, worker_id=f"w{number}", boot="boot")  # type: ignore[arg-type]
    connection.driver.execute("COMMIT")
    return time.perf_counter() - began


def commit_and_sync_once_a_second(connection: StoreConnection, log_path: Path, count: int) -> float:
    """As `commit_claims`, with the sync of the log that `normal` adds once a second, charged to one commit."""
    seconds = commit_claims(connection, count)
    descriptor = os.open(log_path, os.O_RDONLY)
    try:
        began = time.perf_counter()
        os.fsync(descriptor)
        return seconds + time.perf_counter() - began
    finally:
        os.close(descriptor)


def measure(folder: Path, size: str) -> list[Result]:
    """Every mode and group, interleaved."""
    stores = {mode: open_store(folder, mode) for mode in MODES}
    samples: dict[tuple[str, int], list[float]] = {(mode, group): [] for mode in MODES for group in GROUPS}
    syncs: list[float] = []
    for _ in range(ROUNDS[size]):
        for group in GROUPS:
            for mode, store in stores.items():
                samples[mode, group] += [commit_claims(store, group) / group for _ in range(COMMITS[size])]
        log_path = folder / "normal" / "metadata.db-wal"
        syncs.append(commit_and_sync_once_a_second(stores["normal"], log_path, 1))
    for store in stores.values():
        store.close()

    def result(case: str, values: list[float], reference_group: int, detail: str = "") -> Result:
        value = statistics.median(values) * 1e6
        reference = statistics.median(samples["normal", reference_group]) * 1e6
        return Result(
            benchmark="store_writes",
            case=case,
            value=value,
            unit="µs",
            reference=f"normal in groups of {reference_group}",
            reference_value=reference,
            ratio=value / reference,
            target=None,
            better="lower",
            status="measured",
            n=len(values),
            detail=detail,
        )

    results = [result(f"claim.{mode}.{group}", samples[mode, group], group) for group in GROUPS for mode in MODES]
    results.append(result("claim.normal.and_sync", syncs, 1, "the one commit a second that a sync of the log follows, in another thread"))
    return results


def main() -> None:
    options = parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Path(folder), options.size)
    print_results(results, as_json=options.json, method=METHOD)


if __name__ == "__main__":
    main()
