"""What one call costs its client in CPU time, by HTTP library: ours, http.client, urllib3 and httpx on one keep-alive connection.

A process of its own answers at once with an answer as tornado writes it, so that only the client's side is counted.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
from report import Result, median_ratio, parser, print_results

from gpulayer.calls import CALLS
from gpulayer.client.direct import DirectExchange
from gpulayer.client.exchange import HttpRequest
from gpulayer.client.http_transport import HttpTransport
from gpulayer.protocol import AcquireTask, WorkerId

METHOD = "CPU time of the client's process per POST with a JSON answer over loopback; the libraries take turns, medians over the rounds"
ROUNDS = {"full": 40, "quick": 10, "tiny": 2}
CALLS_A_ROUND = {"full": 100, "quick": 50, "tiny": 5}
TARGET = 0.5
"""Half of what httpx takes, to be worth a second way."""

TARGET_PATH = "/gpulayer/v1/worker/acquire"
BODY = b'{"worker_id":"w1","boot":"b","free":1,"wait":0.0,"received":[]}'
HEADERS = {"Authorization": "Bearer gpw_0123456789012345678901234567890123456789", "Content-Type": "application/json"}
CONTENT = b'{"assignments":[],"stops":[],"drain":false}'
ANSWER = (
    b"HTTP/1.1 200 OK\r\nServer: TornadoServer/6.6.1\r\nContent-Type: application/json\r\nDate: Mon, 30 Nov 2026 00:00:00 GMT\r\n"
    b"X-Content-Type-Options: nosniff\r\nContent-Security-Policy: frame-ancestors 'self'; report-uri /api/security/csp-report; "
    b"default-src 'none'\r\nContent-Length: %d\r\n\r\n%s" % (len(CONTENT), CONTENT)
)


def serve() -> None:
    """Answer every request until stdin closes; prints the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)

    def accept() -> None:
        while True:
            threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


def answer(connection: socket.socket) -> None:
    """Requests come in one or two pieces; each ends with its body."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            data += piece
            if data.endswith(b"}"):
                data = b""
                connection.sendall(ANSWER)


@contextlib.contextmanager
def answering() -> Iterator[int]:
    """The port of a process that answers."""
    process = subprocess.Popen([sys.executable, str(Path(__file__)), "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


@contextlib.contextmanager
def ways(port: int) -> Iterator[dict[str, Callable[[], bytes | object]]]:
    """One call by each library, on a connection that is kept."""
    import urllib3

    url = f"http://127.0.0.1:{port}{TARGET_PATH}"
    direct = DirectExchange("127.0.0.1", port, None)
    request = HttpRequest("POST", TARGET_PATH, HEADERS, BODY, 10.0)
    transport = HttpTransport(f"http://127.0.0.1:{port}/", "gpw_0123456789012345678901234567890123456789")
    acquire = AcquireTask(worker_id=WorkerId("w1"), boot="b", free=1, wait=0.0)
    standard = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    pool = urllib3.HTTPConnectionPool("127.0.0.1", port, timeout=10)

    def by_http_client() -> bytes:
        standard.request("POST", TARGET_PATH, body=BODY, headers=HEADERS)
        return standard.getresponse().read()

    with httpx.Client(trust_env=False) as client:
        yield {
            "httpx": lambda: client.post(url, content=BODY, headers=HEADERS).content,
            "urllib3": lambda: pool.urlopen("POST", TARGET_PATH, body=BODY, headers=HEADERS).data,
            "http.client": by_http_client,
            "direct": lambda: direct.ask(request).content,
            "transport": lambda: transport.call(CALLS["acquire_task"], acquire),
        }
    standard.close()
    pool.close()
    direct.close()
    transport.close()


def main() -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args()
    rounds, calls = ROUNDS[options.size], CALLS_A_ROUND[options.size]
    with answering() as port, ways(port) as by:
        for name, call in by.items():
            assert call() == CONTENT or name == "transport"
        spent: dict[str, list[float]] = {name: [] for name in by}
        for _ in range(rounds):
            for name, call in by.items():
                began = time.process_time()
                for _ in range(calls):
                    call()
                spent[name].append((time.process_time() - began) / calls * 1e6)
    reference = spent.pop("httpx")
    results = [
        Result(
            benchmark="http_calls",
            case=f"cpu.{name}",
            value=statistics.median(values),
            unit="µs",
            reference="httpx",
            reference_value=statistics.median(reference),
            ratio=median_ratio(values, reference),
            target=TARGET if name in ("direct", "transport") else None,
            better="lower",
            status="measured",
            n=rounds,
            detail="messages made and read besides" if name == "transport" else "",
        )
        for name, values in spent.items()
    ]
    print_results(results, as_json=options.json, method=METHOD)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        main()
