"""Local workers: started in their own session, reaped when they end, and clear about an early death."""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from gpulayer_server.local_workers import ServerLocalWorkers

from gpulayer.errors import Unsupported
from gpulayer.protocol import StartLocalWorkers

URL = "http://127.0.0.1:1/"


class Interpreter:
    """A stand-in for a Python with gpulayer: says how it was started, then waits until its end is ordered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "python"
        self.path.write_text(
            f'#!/bin/sh\nread token\necho "$token $PWD [$JUPYTER_TOKEN] $*" > {folder}/started.$$\n'
            f"mv {folder}/started.$$ {folder}/$$.started\nexec sleep 600\n"
        )
        self.path.chmod(0o700)

    def request(self, count: int = 1, **options: object) -> StartLocalWorkers:
        return StartLocalWorkers(count=count, python=str(self.path), **options)

    async def started(self, pid: int) -> str:
        path = self.folder / f"{pid}.started"
        async with asyncio.timeout(10):
            while not path.exists():
                await asyncio.sleep(0.01)
        return path.read_text()


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    return Interpreter(tmp_path)


@pytest.fixture
def local_workers() -> Iterator[ServerLocalWorkers]:
    local_workers = ServerLocalWorkers(URL)
    yield local_workers
    for pid in local_workers.pids:
        psutil.Process(pid).kill()


async def ended(local_workers: ServerLocalWorkers) -> None:
    async with asyncio.timeout(10):
        while local_workers.pids:
            await asyncio.sleep(0.01)


async def test_how_they_are_started(
    interpreter: Interpreter, local_workers: ServerLocalWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_TOKEN", "canary")
    home = tmp_path / "home"
    home.mkdir()
    await local_workers.start(
        interpreter.request(2, cpu_devices=3, simulate_devices="cuda:4"), home=home, join_tokens=["token-a", "token-b"]
    )
    pids = local_workers.pids
    said = sorted([await interpreter.started(pid) for pid in pids])
    for number, (token, text) in enumerate(zip(("token-a", "token-b"), said, strict=True), start=1):
        assert text.startswith(f"{token} {home / 'workers'} [] -m gpulayer worker start --server {URL} --home {home} ")
        assert text.rstrip().endswith(f"--token-stdin --local --name local-{number} --cpu-devices 3 --simulate-devices cuda:4")
    for pid in pids:
        assert os.getsid(pid) == pid != os.getsid(0)
        words = psutil.Process(pid).cmdline()
        assert not {"token-a", "token-b"} & set(words)


async def test_an_ended_worker_leaves_no_zombie_and_frees_its_number(
    interpreter: Interpreter, local_workers: ServerLocalWorkers, tmp_path: Path
) -> None:
    await local_workers.start(interpreter.request(2), home=tmp_path, join_tokens=["a", "b"])
    first, second = local_workers.pids
    await interpreter.started(first)
    await interpreter.started(second)
    os.kill(first, 9)
    async with asyncio.timeout(10):
        while first in local_workers.pids:
            await asyncio.sleep(0.01)
    assert not psutil.pid_exists(first)
    # Another server of this home: the number of the living one is taken though nobody here started it.
    other = ServerLocalWorkers(URL)
    await other.start(interpreter.request(2), home=tmp_path, join_tokens=["c", "d"])
    names = sorted([(await interpreter.started(pid)).split("--name ")[1].split()[0] for pid in other.pids])
    assert names == ["local-1", "local-3"]
    for pid in (second, *other.pids):
        os.kill(pid, 9)
    await ended(local_workers)
    await ended(other)
    assert not [child for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE]


async def test_an_interpreter_without_gpulayer_is_said_at_once(local_workers: ServerLocalWorkers, tmp_path: Path) -> None:
    without = tmp_path / "python"
    without.write_text(f'#!/bin/sh\nexec {sys._base_executable} -S "$@"\n')
    without.chmod(0o700)

    async def start_and_wait() -> None:
        await local_workers.start(StartLocalWorkers(count=1, python=str(without)), home=tmp_path, join_tokens=["t"])
        await asyncio.Event().wait()

    async with asyncio.timeout(10):
        with pytest.raises(Unsupported, match="ended before it was ready") as refused:
            await local_workers.unless_one_dies(start_and_wait())
    assert "No module named gpulayer" in (refused.value.found or "")
    assert "Install GPUlayer in that environment" in (refused.value.fix or "")
    assert str(without) in (refused.value.asked or "")


async def test_no_interpreter_at_all(local_workers: ServerLocalWorkers, tmp_path: Path) -> None:
    request = StartLocalWorkers(count=1, python=str(tmp_path / "nothing"))
    with pytest.raises(Unsupported, match="can't be started"):
        await local_workers.unless_one_dies(local_workers.start(request, home=tmp_path, join_tokens=["t"]))
    assert local_workers.pids == ()


async def test_the_answer_of_the_call_comes_through(local_workers: ServerLocalWorkers) -> None:
    async def answer() -> str:
        return "registered"

    assert await local_workers.unless_one_dies(answer()) == "registered"


async def test_the_interpreters_of_a_home_are_remembered_while_they_are_there(
    interpreter: Interpreter, local_workers: ServerLocalWorkers, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    assert local_workers.interpreters(home) == []
    (tmp_path / "other").mkdir()
    other = Interpreter(tmp_path / "other")
    for one in (interpreter, other, interpreter):
        await local_workers.start(one.request(), home=home, join_tokens=["token"])
    assert ServerLocalWorkers(URL).interpreters(home) == [str(interpreter.path), str(other.path)]
    assert (home / "workers" / "interpreters").stat().st_mode & 0o777 == 0o600
    interpreter.path.unlink()
    assert local_workers.interpreters(home) == [str(other.path)]
