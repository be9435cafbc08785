"""Moving files to the control plane and back: one large one, ten thousand small ones, and what has not changed.

The reference is `curl` to a bare tornado server (`bare_server.py`) on the same disk; for the small files `tar` is in the
same pipe, as one would do it by hand.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bare_server import bare_server
from report import Result, median_ratio, parser, print_results
from served import Server, end_on_signals, served, temporary_folder

import gpulayer
from gpulayer.bundle.collect import collect_sources
from gpulayer.bundle.unpack import extract_archive
from gpulayer.protocol import Digest

METHOD = (
    "put: client.submit of a job with the file as its input, digest before and after, sync and commit included, against curl -T, whose"
    " server writes the bytes to the same disk as they come, without digest, sync and rename; get: the artifact to a file, digest checked,"
    " against curl -o, which checks nothing; small files: a folder as a job's source, collected, packed and sent, against"
    " tar | curl, and back with unpacking; each repeat with other bytes, interleaved, for the large file each side first in turn;"
    " cached: the same file again, counted by a proxy in between"
)
BYTES = {"full": 1024**3, "quick": 128 * 1024**2, "tiny": 1024**2}
FILES = {"full": 10_000, "quick": 2_000, "tiny": 20}
PAIRS = {"full": 5, "quick": 3, "tiny": 1}
FILE_BYTES = 2_000
SLOWER = 1.3


def main() -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args()
    end_on_signals()
    if shutil.which("curl") is None:
        raise SystemExit("curl is the reference and is not installed. On Debian or Ubuntu: apt-get install curl")
    size, files, pairs = BYTES[options.size], FILES[options.size], PAIRS[options.size]
    with served() as server, temporary_folder() as folder, bare_server(folder / "bare") as bare:
        large = [one_file(server, bare, folder, size, ours_first=bool(number % 2)) for number in range(pairs)]
        small = [small_files(server, bare, folder, files) for _ in range(pairs)]
        results = [
            _result("put", [one[0] for one in large], f"{size / 2**20:.0f} MB"),
            _result("get", [one[1] for one in large], f"{size / 2**20:.0f} MB"),
            _result("put.files", [one[0] for one in small], f"{files} files of {FILE_BYTES} bytes"),
            _result("get.files", [one[1] for one in small], f"{files} files of {FILE_BYTES} bytes"),
            cached(server, folder, size),
        ]
    print_results(results, as_json=options.json, method=METHOD)


Pair = tuple[float, float]
"""Seconds: ours, the reference's."""


def one_file(server: Server, bare: str, folder: Path, size: int, *, ours_first: bool) -> tuple[Pair, Pair]:
    """Put and get of one file of fresh random bytes.

    The two take turns at going first, and nothing is left of a pair: whoever writes into memory that the system has just got
    back from a removed file is quicker, on a virtual machine several times.
    """
    path, back, back_by_curl = folder / "data", folder / "back", folder / "back.curl"
    write_random(path, size)
    sent = sha256_of(path)
    job: gpulayer.Job | None = None

    def put() -> float:
        nonlocal job
        job, took = submitted(server, gpulayer.CommandJob(argv=("python", "-c", "pass"), inputs={"data": str(path)}))
        return took

    puts = in_turn(put, lambda: timed(lambda: curl("-T", str(path), f"{bare}data")), ours_first)
    assert server.client.transport.has_artifact(sent)
    gets = in_turn(
        lambda: timed(lambda: server.client.transport.get_artifact(sent, back)),
        lambda: timed(lambda: curl("-o", str(back_by_curl), f"{bare}data")),
        ours_first,
    )
    assert sha256_of(back) == sha256_of(back_by_curl) == sent
    assert job is not None
    job.cancel()
    for used in (path, back, back_by_curl, folder / "bare" / "data", *server.folder.rglob(f"artifacts/*/{sent}")):
        used.unlink()
    return puts, gets


def in_turn(ours: Callable[[], float], theirs: Callable[[], float], ours_first: bool) -> Pair:
    if ours_first:
        value = ours()
        return value, theirs()
    reference = theirs()
    return ours(), reference


def small_files(server: Server, bare: str, folder: Path, count: int) -> tuple[Pair, Pair]:
    """Put and get of a folder of small files, as the source of a job."""
    many, ours, by_hand, archive = folder / "many", folder / "ours", folder / "by-hand", folder / "archive.tar"
    many.mkdir()
    for number in range(count):
        write_random(many / f"file-{number:05d}", FILE_BYTES)
    by_curl = timed(lambda: shell(f"tar cf - -C '{many}' . | curl -sS -f -T - {bare}many"))
    job, put = submitted(server, gpulayer.CommandJob(argv=("python", "-c", "pass"), source=str(many)))
    sent = source_digest(many)
    by_hand.mkdir()
    got_by_curl = timed(lambda: shell(f"curl -sS -f {bare}many | tar xf - -C '{by_hand}'"))

    def get() -> None:
        server.client.transport.get_artifact(sent, archive)
        extract_archive(archive, ours)

    got = timed(get)
    for number in range(count):
        name = f"file-{number:05d}"
        assert (ours / name).read_bytes() == (by_hand / name).read_bytes() == (many / name).read_bytes()
    job.cancel()
    for used in (many, ours, by_hand):
        shutil.rmtree(used)
    archive.unlink()
    return (put, by_curl), (got, got_by_curl)


def cached(server: Server, folder: Path, size: int) -> Result:
    """What the second put of the same file sends."""
    path = folder / "data"
    write_random(path, size)
    digest = sha256_of(path)
    with counting_proxy(server.url) as (url, counted), gpulayer.connect(url, token=server.client_token) as client:
        client.transport.put_artifact(path, digest)
        first = dict(counted)
        assert first["body bytes"] >= size, first
        client.transport.put_artifact(path, digest)
        requests, body = counted["requests"] - first["requests"], counted["body bytes"] - first["body bytes"]
    path.unlink()
    return Result(
        benchmark="transfer",
        case="cached",
        value=requests,
        unit="requests",
        reference="one request",
        reference_value=1,
        ratio=float(requests),
        target=1.0,
        better="lower",
        limit=1.0 if body == 0 else 0.0,  # a byte of the file is a miss, however few requests there were
        status="measured",
        n=1,
        detail=f"{body} bytes of the file sent",
    )


def submitted(server: Server, spec: gpulayer.CommandJob) -> tuple[gpulayer.Job, float]:
    """The job, and how long its submit took. There is no worker: it waits, and is cancelled afterwards."""
    began = time.perf_counter()
    job = server.client.submit(spec)
    return job, time.perf_counter() - began


def timed(what: Callable[[], Any]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def curl(*arguments: str) -> None:
    subprocess.run(["curl", "-sS", "-f", *arguments], check=True)


def shell(line: str) -> None:
    subprocess.run(["bash", "-o", "pipefail", "-c", line], check=True)


def write_random(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for start in range(0, size, 2**20):
            file.write(os.urandom(min(2**20, size - start)))


def sha256_of(path: Path) -> Digest:
    with path.open("rb") as file:
        return Digest(hashlib.file_digest(file, "sha256").hexdigest())


def source_digest(folder: Path) -> Digest:
    """What a folder's source is stored under."""
    return collect_sources(folder).digest()


@contextmanager
def counting_proxy(url: str) -> Iterator[tuple[str, dict[str, int]]]:
    """A way to the server through which requests are counted, and the bytes of their bodies."""
    target = urlsplit(url)
    counted = {"requests": 0, "body bytes": 0}
    listening = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return  # closed: the benchmark is done
            server = socket.create_connection((target.hostname or "", target.port or 80))
            threading.Thread(target=forward, args=(client, server, True), daemon=True).start()
            threading.Thread(target=forward, args=(server, client, False), daemon=True).start()

    def forward(source: socket.socket, sink: socket.socket, is_counted: bool) -> None:
        with source, sink, contextlib.suppress(OSError):
            while data := source.recv(2**16):
                if is_counted:
                    head = data.startswith((b"GET ", b"HEAD ", b"PUT ", b"POST "))
                    counted["requests"] += head
                    counted["body bytes"] += len(data.partition(b"\r\n\r\n")[2]) if head else len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}{target.path}", counted
    finally:
        listening.close()


def _result(case: str, pairs: list[Pair], detail: str) -> Result:
    values, references = [one for one, _ in pairs], [other for _, other in pairs]
    return Result(
        benchmark="transfer",
        case=case,
        value=statistics.median(values),
        unit="s",
        reference="curl to a bare tornado server",
        reference_value=statistics.median(references),
        ratio=median_ratio(values, references),
        target=SLOWER,
        better="lower",
        status="measured",
        n=len(pairs),
        detail=detail,
    )


if __name__ == "__main__":
    main()
