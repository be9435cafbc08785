"""A load on one control plane, as a process of its own: tasks that print, many small jobs, one large upload.

Prints "loaded" once every printing task has been heard, then "done" and what it came to as JSON. The client token comes over
stdin, where no list of processes shows it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from served import temporary_folder

import gpulayer
from gpulayer.protocol import Digest

SECONDS_BETWEEN = 0.05
PRINTER = f"""
import sys, time
rate, number = int(sys.argv[1]), 0
began = time.monotonic()
while True:
    due = int((time.monotonic() - began) * rate) + 1
    sys.stdout.write("".join(f"line {{n}} of a task that prints\\n" for n in range(number, due)))
    sys.stdout.flush()
    number = due
    time.sleep({SECONDS_BETWEEN})
"""


def main() -> None:
    """Put the load on, and take it off again."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("url")
    for name in ("--printers", "--lines-each-second", "--jobs", "--upload-bytes"):
        made.add_argument(name, type=int, required=True)
    options = made.parse_args()
    token = sys.stdin.readline().strip()
    with gpulayer.connect(options.url, token=token) as client, temporary_folder() as folder:
        printers = [client.submit(_printer(options.lines_each_second)) for _ in range(options.printers)]
        for printer in printers:
            next(printer.follow_logs())
        data = folder / "data"
        data.write_bytes(os.urandom(options.upload_bytes))
        print("loaded", flush=True)
        # Held until the other end has begun to look.
        sys.stdin.readline()
        began = time.monotonic()
        with ThreadPoolExecutor(2) as pool:
            for part in [pool.submit(_upload, client, data), pool.submit(_run_jobs, client, options.jobs)]:
                part.result()
        took = time.monotonic() - began
        print("done", flush=True)
        for printer in printers:
            printer.cancel(force=True)
        for printer in printers:
            printer.wait()
        lines = sum(1 for _ in printers[0].logs())
        status = printers[0].status
        assert status.started_at is not None
        assert status.ended_at is not None
        print(json.dumps({"seconds": took, "lines_each_second": lines / (status.ended_at - status.started_at)}), flush=True)


def _printer(rate: int) -> gpulayer.CommandJob:
    return gpulayer.CommandJob(argv=("python", "-c", PRINTER, str(rate)), accelerator="cpu")


def _upload(client: gpulayer.Client, data: Path) -> None:
    with data.open("rb") as file:
        digest = Digest(hashlib.file_digest(file, "sha256").hexdigest())
    client.transport.put_artifact(data, digest)


def _run_jobs(client: gpulayer.Client, count: int) -> None:
    spec = gpulayer.CommandJob(argv=("python", "-c", "pass"), accelerator="cpu")
    for job in [client.submit(spec) for _ in range(count)]:
        assert job.wait().status.state is gpulayer.JobState.SUCCEEDED, job.status


if __name__ == "__main__":
    main()
