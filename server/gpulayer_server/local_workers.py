"""Workers that this server starts on its own machine: processes in their own session, which outlive the server.

Here they are started, watched until they end, and their early death is told to whoever waits for them. What a worker does
lives in `gpulayer.worker`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from gpulayer.errors import Unsupported
from gpulayer.protocol import StartLocalWorkers

T = TypeVar("T")

_LOG_TAIL_BYTES = 2000
_INTERPRETERS_KEPT = 20
_NOT_INHERITED = ("JUPYTER_TOKEN", "JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN", "GPULAYER_TOKEN", "JPY_PARENT_PID")
"""Credentials of the server and of its kernels; a worker has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExit:
    """How a worker process ended."""

    name: str
    python: str
    returncode: int
    last_output: str


_first_exit: ContextVar[asyncio.Future[WorkerExit] | None] = ContextVar("_first_exit", default=None)
"""Set around a call that waits for workers; the tasks it starts see it."""


class ServerLocalWorkers:
    """Starts local workers for the control plane (its `LocalWorkers`).

    Args:
        url: where the workers reach this server.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._running: dict[int, subprocess.Popen[bytes]] = {}  # an unreferenced Popen would warn, and reap in its own way

    @property
    def pids(self) -> tuple[int, ...]:
        """The worker processes of this server that run."""
        return tuple(self._running)

    async def start(self, request: StartLocalWorkers, *, home: Path, join_tokens: list[str]) -> None:
        """Start one worker for each token; returns once the processes run, before the workers have registered."""
        request = msgspec.structs.replace(request, python=request.python or sys.executable)
        first_exit = _first_exit.get()
        loop = asyncio.get_running_loop()
        for token in join_tokens:
            await asyncio.to_thread(self._start_one, request, home, token, first_exit, loop)

    async def unless_one_dies(self, call: Awaitable[T]) -> T:
        """Await a call that starts workers and waits for them; if one of them ends first, stop waiting.

        Raises:
            Unsupported: with the end of the dead worker's output.
        """
        exited: asyncio.Future[WorkerExit] = asyncio.get_running_loop().create_future()
        before = _first_exit.set(exited)
        try:
            waiting = asyncio.ensure_future(call)  # copies the context
        finally:
            _first_exit.reset(before)
        try:
            ends: list[asyncio.Future[Any]] = [waiting, exited]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
            raise _died_early(exited.result())
        finally:
            waiting.cancel()
            exited.cancel()

    def interpreters(self, home: Path) -> list[str]:
        """Those with which workers of this home were started, by whatever server, and that are still there; the last one first.

        From a file that only the home's owner can write: what a worker says about itself starts nothing here.
        """
        try:
            lines = _interpreters_file(home).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [python for python in dict.fromkeys(reversed(lines)) if os.access(python, os.X_OK)]

    def _start_one(
        self,
        request: StartLocalWorkers,
        home: Path,
        token: str,
        first_exit: asyncio.Future[WorkerExit] | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        python = request.python
        folder = home / "workers"
        folder.mkdir(mode=0o700, exist_ok=True)
        number, log = _claim_log(folder)
        name = f"local-{number}"
        # In `folder`, not where the server was started: `python -m` would import what lies there.
        with log:
            try:
                process = subprocess.Popen(
                    [python, *self._arguments(request, home, name)],
                    cwd=folder,
                    env={key: value for key, value in os.environ.items() if key not in _NOT_INHERITED},
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # no signal meant for the server reaches it
                )
            except OSError as error:
                raise Unsupported("The Python for the local workers can't be started.", asked=python, found=str(error)) from error
        self._running[process.pid] = process
        _note_interpreter(home, python)
        assert process.stdin is not None
        try:
            process.stdin.write(token.encode() + b"\n")
            process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended already; its watcher says how

        def watch() -> None:
            returncode = process.wait()
            del self._running[process.pid]
            if first_exit is not None:
                ended = WorkerExit(name=name, python=python, returncode=returncode, last_output=_tail(_log_path(folder, number)))
                try:
                    loop.call_soon_threadsafe(_tell, first_exit, ended)
                except RuntimeError:
                    pass  # the loop is closed: nobody waits any more

        threading.Thread(target=watch, name=f"gpulayer-{name}", daemon=True).start()

    def _arguments(self, request: StartLocalWorkers, home: Path, name: str) -> list[str]:
        argv = ["-m", "gpulayer", "worker", "start", "--server", self._url, "--home", str(home)]
        argv += ["--token-stdin", "--local", "--name", name]
        if request.cpu_devices is not None:
            argv += ["--cpu-devices", str(request.cpu_devices)]
        if request.simulate_devices is not None:
            argv += ["--simulate-devices", request.simulate_devices]
        return argv


def _interpreters_file(home: Path) -> Path:
    return home / "workers" / "interpreters"


def _note_interpreter(home: Path, python: str) -> None:
    path = _interpreters_file(home)
    known = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if known[-1:] == [python] or "\n" in python:
        return
    unfinished = path.with_name(f".interpreters.{os.getpid()}.{threading.get_ident()}")
    kept = [*(other for other in known if other != python), python][-_INTERPRETERS_KEPT:]
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write("".join(f"{other}\n" for other in kept))
    unfinished.replace(path)


def _log_path(folder: Path, number: int) -> Path:
    return folder / f"{number}.log"


def _claim_log(folder: Path) -> tuple[int, BinaryIO]:
    """The first number whose log no living worker holds, and that log, emptied.

    The lock lies on the open file that the worker inherits, so it holds as long as the worker lives, whatever becomes of
    this server.
    """
    number = 1
    while True:
        log = os.fdopen(os.open(_log_path(folder, number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab", buffering=0)
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.close()
            number += 1
            continue
        log.truncate(0)
        return number, log


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
        return file.read().decode(errors="replace").strip()


def _tell(first_exit: asyncio.Future[WorkerExit], ended: WorkerExit) -> None:
    if not first_exit.done():
        first_exit.set_result(ended)


def _died_early(ended: WorkerExit) -> Unsupported:
    lines = ended.last_output.splitlines()
    how = f"signal {-ended.returncode}" if ended.returncode < 0 else f"exit code {ended.returncode}"
    missing = "No module named gpulayer" in ended.last_output
    return Unsupported(
        f"A local worker ended before it was ready ({how}).",
        asked=f"a worker with {ended.python}",
        found=lines[-1] if lines else "no output",
        fix="Install GPUlayer in that environment too (docs: Support, Installing)." if missing else "Its output is in `details`.",
        details={"worker": ended.name, "exit_code": ended.returncode, "last_output": ended.last_output},
    )
