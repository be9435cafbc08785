"""Where a chaos run happens: a real server, workers as processes, a proxy between all of them, and what they leave behind."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

import gpulayer
from gpulayer.bundle.archive import Bundle
from gpulayer.errors import GPUlayerError, InternalError, Interrupted, NotAuthenticated, ServerUnreachable
from support.chaos_checker import AttemptKey, History, StoredAttempt, StoredChunk, Written
from support.chaos_proxy import ChaosProxy
from support.history_rules import JOB_ENDS
from support.observed_moves import Observer
from support.server import RunningServer, running_server

TESTS = Path(__file__).parents[1]
MARKER = "CHAOS_RUN"
JOIN_SECONDS = 60.0

PROGRAM = """
import os, sys, threading, time
count, pause = int(sys.argv[1]), float(sys.argv[2])
attempt, rank = os.environ["GPULAYER_ATTEMPT"], os.environ.get("RANK", "0")
name = os.environ["GPULAYER_TASK_ID"] + "." + attempt + "." + rank + "." + str(os.getpid())
with open(os.path.join(os.environ["CHAOS_WRITTEN"], name), "w", buffering=1) as stamps:
    for number in range(count):
        print("stdout", attempt, number, flush=True)
        print("stderr", attempt, number, flush=True, file=sys.stderr)
        stamps.write(f"{time.monotonic()}\\n")
        threading.Event().wait(pause)
    stamps.write("end\\n")
"""
"""Prints `chaos_checker.expected_line`s, and stamps each pair of them once both are printed."""


class ChaosWorker:
    """One worker process, and the processes below it; `by_home` is one that does not come through the proxy."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], *, by_home: bool = False) -> None:
        self.name = name
        self.process = process
        self.by_home = by_home

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def keeper(self) -> psutil.Process | None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children():
                if any("gpulayer.runtime.keeper" in word for word in child.cmdline()):
                    return child
        return None

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


class ChaosPlace:
    """A server, its proxy, its workers and a client, on a folder of their own."""

    def __init__(self, folder: Path, server: RunningServer, env: dict[str, str]) -> None:
        self.folder = folder
        self.server = server
        self.proxy = ChaosProxy()
        self.workers: list[ChaosWorker] = []
        self.accepted: dict[str, list[str]] = {}
        self.told: dict[str, list[str]] = {}
        self.left_over: list[str] = []
        self.observer = Observer(server.home)
        self.observer.begin()
        self._env = env
        self._lock = threading.Lock()
        self._drawn = 0
        self._of_thread = threading.local()
        self._clients: list[gpulayer.Client] = []
        self.lead_proxy_to_server()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.proxy.port}/"

    def lead_proxy_to_server(self) -> None:
        self.proxy.lead_to(urlsplit(self.server.url).port)

    @property
    def client(self) -> gpulayer.Client:
        """This thread's client, which comes through the proxy; another one once a new server has left another token."""
        token = self.server.client_token
        if getattr(self._of_thread, "token", None) != token:
            self._of_thread.token, self._of_thread.client = token, gpulayer.connect(self.url, token=token)
            self._clients.append(self._of_thread.client)
        return self._of_thread.client

    # ---- workers

    def start_worker(self, cpu_devices: int = 1, *, by_home: bool = False) -> ChaosWorker:
        """Start a worker and return once it has registered; through the proxy, or by the home's files as a local one finds them."""
        self._drawn += 1
        name = f"chaos-{self._drawn}"
        token = self.server.request("POST", "gpulayer/v1/tokens/join", json={}).json()["token"]
        where = ["--home", str(self.server.home)] if by_home else ["--server", self.url]
        argv = [sys.executable, "-m", "support.chaos_hosts", "worker", *where, "--token-stdin", "--name", name]
        argv += ["--cpu-devices", str(cpu_devices), "--work-dir", str(self.folder / "work")]
        env = {key: value for key, value in os.environ.items() if not key.startswith("GPULAYER_")} | self._env
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
        assert process.stdin is not None
        process.stdin.write(token.encode() + b"\n")
        process.stdin.close()
        worker = ChaosWorker(name, process, by_home=by_home)
        self.workers.append(worker)
        self.wait_until(lambda: self.observer.rows("SELECT 1 FROM workers WHERE name = ?", name), JOIN_SECONDS)
        return worker

    def running_on(self, worker: ChaosWorker) -> list[AttemptKey]:
        """The attempts whose processes run there, as the store and the processes themselves say."""
        query = """SELECT job_id, node, attempt FROM attempts JOIN workers ON workers.id = attempts.worker_id
                   WHERE attempts.state = 'running' AND workers.name = ?"""
        found = [(row["job_id"], row["node"], row["attempt"]) for row in self.observer.rows(query, worker.name)]
        return [key for key in found if any(written.key == key and not written.ended for written in self.written())]

    def attempt_states(self) -> dict[AttemptKey, str]:
        """The state of every attempt at this moment, as stored."""
        rows = self.observer.rows("SELECT job_id, node, attempt, state FROM attempts")
        return {(row["job_id"], row["node"], row["attempt"]): row["state"] for row in rows}

    def ranks_of(self, key: AttemptKey) -> list[int]:
        return [written.pid for written in self.written() if written.key == key and not written.ended]

    @contextlib.contextmanager
    def planted(self, name: str) -> Iterator[None]:
        """While the block runs, server and workers have this bug; "" is none."""
        plant = self.folder / "plant"
        plant.write_text(name)
        try:
            yield
        finally:
            plant.write_text("")

    # ---- jobs

    def submit(self, key: str, lines: int, pause: float, *, nodes: int = 1, before: str = "", **options) -> str:
        """Submit under this key until it is accepted, however often the connection is cut; returns the job's id.

        Args:
            key: of idempotency.
            lines: how many pairs of lines it prints.
            pause: seconds between two of them.
            nodes: more than one makes it a distributed job.
            before: what the program does first.
            options: further fields of the job.
        """
        program, arguments = "chaos_job.py", [str(lines), str(pause)]
        spec = (
            gpulayer.CommandJob(["python", "-c", before + PROGRAM, *arguments], **options)
            if nodes == 1
            else gpulayer.DistributedJob(script=program, args=arguments, nodes=nodes, **options)
        )
        while True:
            # Unreachable, closing, or a client of the server that was just killed.
            with contextlib.suppress(ServerUnreachable, Interrupted, InternalError, NotAuthenticated):
                source = Bundle({program: PROGRAM.encode()}) if nodes > 1 else None
                job = self.client.submit(spec, source=source, idempotency_key=key)
                with self._lock:
                    self.accepted.setdefault(key, []).append(job.id)
                return job.id
            threading.Event().wait(0.1)

    def ask_for_outcomes(self) -> None:
        """Ask for every accepted job, and keep what was told about those that have ended."""
        for job_id in sorted({job_id for ids in self.accepted.values() for job_id in ids}):
            with contextlib.suppress(GPUlayerError):
                state = self.client.job(job_id).state
                if state.is_terminal:
                    with self._lock:
                        self.told.setdefault(job_id, []).append(state.value)

    def unfinished(self) -> list[str]:
        accepted = {job_id for ids in self.accepted.values() for job_id in ids}
        return [
            row["id"] for row in self.observer.rows("SELECT id, state FROM jobs") if row["state"] not in JOB_ENDS and row["id"] in accepted
        ]

    def written(self) -> list[Written]:
        found = []
        for path in sorted((self.folder / "written").iterdir()):
            job_id, node, attempt, rank, pid = path.name.rsplit(".", 4)
            lines = path.read_text().split("\n")[:-1]
            ended = lines[-1:] == ["end"]
            stamps = tuple(float(line) for line in (lines[:-1] if ended else lines))
            found.append(Written(key=(job_id, int(node), int(attempt)), rank=int(rank), pid=int(pid), stamps=stamps, ended=ended))
        return found

    def wait_until(self, is_true, seconds: float) -> bool:
        """Look every few milliseconds: what is waited for happens in other processes."""
        look = threading.Event()
        for _ in range(int(seconds / 0.02)):
            if is_true():
                return True
            look.wait(0.02)
        return bool(is_true())

    # ---- the end

    def stop_all(self) -> None:
        """End workers and server as an operator does, and note what of them lives on."""
        for worker in self.workers:
            if worker.is_alive:
                worker.resume()
                worker.process.terminate()
        for worker in self.workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(20)
        self.server.stop()
        self.wait_until(lambda: not self._marked(), 10.0)
        self.left_over = [f"{process.pid} {' '.join(process.cmdline())[:120]}" for process in self._marked()]

    def history(self, *job_ids: str) -> History:
        """All that is known about this run, or about these jobs of it."""

        def rows(query: str, field: str = "job_id") -> list[dict[str, Any]]:
            return [row for row in self.observer.rows(query) if not job_ids or row[field] in job_ids]

        attempts = {
            (row["job_id"], row["node"], row["attempt"]): StoredAttempt(
                state=row["state"], devices=tuple(f"{row['worker_id']}/{device['id']}" for device in json.loads(row["devices"]))
            )
            for row in rows("SELECT * FROM attempts")
        }
        chunks = [
            StoredChunk(
                key=(row["job_id"], row["node"], row["attempt"]),
                rank=row["rank"],
                stream=row["stream"],
                sequence=row["sequence"],
                offset=row["offset"],
                data=row["data"],
            )
            for row in rows("SELECT * FROM logs ORDER BY job_id, sequence")
        ]
        return History(
            accepted={key: ids for key, ids in self.accepted.items() if not job_ids or ids[0] in job_ids},
            told=self.told,
            jobs={row["id"]: row["state"] for row in rows("SELECT id, state FROM jobs", "id")},
            attempts=attempts,
            reservations=[(row["job_id"], row["node"], row["attempt"]) for row in rows("SELECT * FROM reservations")],
            chunks=[chunk for chunk in chunks if chunk.rank >= 0],
            observed=[row for row in self.observer.seen() if not job_ids or row.job_id in job_ids],
            written=[written for written in self.written() if not job_ids or written.key[0] in job_ids],
            left_over=self.left_over,
        )

    def close(self) -> None:
        """End whatever is left of this run: its processes carry its marker, and only those are touched."""
        for client in self._clients:
            client.close()
        self.proxy.close()
        self.observer.close()
        for process in self._marked():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for worker in self.workers:
            worker.process.wait(10)

    def _marked(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(MARKER) == self._env[MARKER] and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


@contextlib.contextmanager
def chaos_place(folder: Path, *, plants: bool = False, frameworks: str = "python") -> Iterator[ChaosPlace]:
    """A place without workers; with `plants`, bugs can be planted into it."""
    (folder / "written").mkdir()
    env = {
        MARKER: secrets.token_hex(8),
        "CHAOS_WRITTEN": str(folder / "written"),
        "CHAOS_FRAMEWORKS": frameworks,
        "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    (folder / "plant").write_text("")
    if plants:
        env["CHAOS_PLANT"] = str(folder / "plant")
    with running_server(folder / "home", env=env, module=("support.chaos_hosts", "server")) as server:
        place = ChaosPlace(folder, server, env)
        try:
            yield place
        finally:
            place.close()
