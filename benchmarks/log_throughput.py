"""Output: what a job that prints a lot pays for being read, and how many lines one control plane takes in.

`job_slowdown` runs a real job on a real worker; `ingest` speaks the worker's protocol over raw sockets (`raw_calls.py`), so
that nothing but the control plane is at work.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from raw_calls import Connection, RawWorker
from report import Result, against_target, median_ratio, parser, print_results
from served import Server, end_on_signals, served

import gpulayer
from gpulayer.protocol import AppendLogs, Done, LogChunk, TaskAssignment
from gpulayer.settings import LOG_CHUNK_BYTES

METHOD = (
    "job_slowdown: a job prints numbered lines and times itself from its first statement until its last line is flushed, against the same"
    " program into `cat > /dev/null` with the same environment, interleaved; then every line is read back and compared. ingest: 8 streams"
    " of 8 attempts, each sending its next batch when the last one is answered; from the first request until all are answered, stored and"
    " committed; then every line is read back and compared"
)
LINES = {"full": 1_000_000, "quick": 200_000, "tiny": 2_000}
PAIRS = {"full": 5, "quick": 2, "tiny": 1}
INGEST = {"full": (5, 40), "quick": (3, 10), "tiny": (1, 1)}
"""Repeats, and batches of each stream in one of them."""
STREAMS = 8
CHUNKS_OF_A_BATCH = 8
SLOWDOWN = 1.1
LINES_EACH_SECOND = 200_000
LINE = "line {:8d} of the output of a job that prints a lot\n"
CHUNK_LINES = LOG_CHUNK_BYTES // len(LINE.format(0))
PROGRAM = f"""
import sys, time
began = time.monotonic()
write = sys.stdout.write
for number in range(int(sys.argv[1])):
    write({LINE!r}.format(number))
sys.stdout.flush()
open(sys.argv[2], "w").write(str(time.monotonic() - began))
"""


@dataclass(frozen=True)
class Print:
    """One run of the program: how long it took by its own clock, and as the worker stamped its output."""

    seconds: float
    stamped_seconds: float = 0.0


def main() -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args()
    end_on_signals()
    lines, pairs = LINES[options.size], PAIRS[options.size]
    with served(workers=1) as server:
        # PYTHONUNBUFFERED as the worker sets it: each line is a write of its own.
        results = [
            slowdown(server, lines, pairs, case="job_slowdown", env={}, reference_env={"PYTHONUNBUFFERED": "1"}),
            slowdown(server, lines, pairs, case="job_slowdown.buffered", env={"PYTHONUNBUFFERED": ""}, reference_env={}),
        ]
        results.append(asyncio.run(ingest(server, *INGEST[options.size])))
    print_results(results, as_json=options.json, method=METHOD)


def slowdown(server: Server, lines: int, pairs: int, *, case: str, env: dict[str, str], reference_env: dict[str, str]) -> Result:
    """Pairs of a job and of the same program into `cat`."""
    (worker,) = server.workers()
    jobs, cats = [], []
    for _ in range(pairs):
        cats.append(into_cat(server.folder, lines, reference_env))
        jobs.append(as_job(server, lines, env))
    values, references = [one.seconds for one in jobs], cats
    return Result(
        benchmark="log_throughput",
        case=case,
        value=statistics.median(values),
        unit="s",
        reference="the same into cat",
        reference_value=statistics.median(references),
        ratio=median_ratio(values, references),
        target=SLOWDOWN,
        better="lower",
        status="measured",
        n=pairs,
        detail=(
            f"{lines} lines, all read back; first to last line as the worker stamped them"
            f" {statistics.median(one.stamped_seconds for one in jobs):.2f} s; the worker's peak memory {peak_memory_mb(worker)}"
        ),
    )


def into_cat(folder: Path, lines: int, env: dict[str, str]) -> float:
    """The reference: the program into `cat`."""
    took = folder / "took-cat"
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as cat:
        assert cat.stdin is not None
        subprocess.run([sys.executable, "-c", PROGRAM, str(lines), str(took)], stdout=cat.stdin, check=True, env=bare | env)
        cat.stdin.close()
    assert cat.returncode == 0
    return float(took.read_text())


def as_job(server: Server, lines: int, env: dict[str, str]) -> Print:
    """The program as a job; every line must be readable, in order and right, when `wait()` has returned."""
    took = server.folder / "took-job"
    job = server.client.submit(gpulayer.CommandJob(argv=("python", "-c", PROGRAM, str(lines), str(took)), env=env, accelerator="cpu"))
    job.wait()
    assert job.status.state is gpulayer.JobState.SUCCEEDED, job.status
    read, first, last = 0, 0.0, 0.0
    for line in job.logs():
        assert line.text == LINE.format(read)[:-1], (read, line)
        first, last = first or line.time, line.time
        read += 1
    assert read == lines, read
    return Print(float(took.read_text()), last - first)


def peak_memory_mb(process: psutil.Process) -> str:
    """The most memory that the process has had resident, as Linux counts it."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return f"{process.memory_info().rss / 2**20:.0f} MB at the end (no peak on this system)"
    peak_kb = next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]
    return f"{int(peak_kb) / 1024:.0f} MB"


async def ingest(server: Server, repeats: int, batches: int) -> Result:
    """Lines a second that the control plane takes in."""
    rates = [await _take_in(server, number, batches) for number in range(repeats)]
    return Result(
        benchmark="log_throughput",
        case="ingest",
        unit="lines/s",
        better="higher",
        status="measured",
        n=repeats,
        detail=f"{STREAMS} streams, {batches} requests each of {CHUNKS_OF_A_BATCH} chunks of {CHUNK_LINES} lines",
        **against_target(statistics.median(rates), LINES_EACH_SECOND),
    )


def _chunk_data(number: int) -> bytes:
    """A chunk's worth of whole lines, which hold its number."""
    return LINE.format(number).encode() * CHUNK_LINES


async def _take_in(server: Server, repeat: int, batches: int) -> float:
    streams = [await _running_attempt(server, f"stream-{repeat}-{number}") for number in range(STREAMS)]
    bodies = [_batches(worker, task, batches) for worker, task in streams]
    began = time.perf_counter()
    await asyncio.gather(*(_send_all(worker, requests) for (worker, _), requests in zip(streams, bodies, strict=True)))
    took = time.perf_counter() - began
    expected = b"".join(_chunk_data(number) for number in range(CHUNKS_OF_A_BATCH * batches))
    for worker, task in streams:
        await worker.finish(task, "succeeded")
        worker.connection.close()
        job = await asyncio.to_thread(server.client.job, task.job_id)
        stored = await asyncio.to_thread(lambda job=job: b"".join(chunk.data for page in job.follow_pages() for chunk in page.chunks))
        assert stored == expected, f"{len(stored)} bytes are stored; {len(expected)} were sent, or others"
    return STREAMS * batches * CHUNKS_OF_A_BATCH * CHUNK_LINES / took


async def _running_attempt(server: Server, name: str) -> tuple[RawWorker, TaskAssignment]:
    worker = RawWorker(await Connection(server.url, server.client_token).open(), name)
    await worker.register()
    spec = gpulayer.CommandJob(argv=("python", "-c", "pass"), accelerator="cpu", requires=(name,))
    await asyncio.to_thread(server.client.submit, spec)
    task = await worker.assignment()
    await worker.start(task)
    return worker, task


def _batches(worker: RawWorker, task: TaskAssignment, count: int) -> list[bytes]:
    """Every request as it travels, made before the clock runs."""
    return [
        worker.connection.prepared(
            "append_logs",
            AppendLogs(
                chunks=tuple(_chunk(task, number) for number in range(first, first + CHUNKS_OF_A_BATCH)),
                **worker.said_of(task),
            ),
        )
        for first in range(0, count * CHUNKS_OF_A_BATCH, CHUNKS_OF_A_BATCH)
    ]


def _chunk(task: TaskAssignment, number: int) -> LogChunk:
    data = _chunk_data(number)
    return LogChunk(
        attempt=task.attempt,
        node=0,
        rank=0,
        stream="stdout",
        offset=number * len(data),
        first_line=number * CHUNK_LINES,
        time=time.time(),
        data=data,
    )


async def _send_all(worker: RawWorker, requests: list[bytes]) -> Any:
    for request in requests:
        await worker.connection.send(request, Done)


if __name__ == "__main__":
    main()
