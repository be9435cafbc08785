"""One start of one shape, by hand or as a job: run, checked, and split where its borders lie.

By hand, borders are those that the ranks print. Of a job there are also its worker's own marks, which count from the moment the
assignment came in; the ranks' stamps beside them place that moment on the machine's clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from served import temporary_folder

import gpulayer
from gpulayer.bundle.archive import Bundle
from gpulayer.protocol import RankOutcome, TaskStatus

SCRIPT = Path(__file__).parent / "startup_rank.py"
START_SECONDS = 180.0
"""More than any start takes; what runs longer hangs, and is ended."""
STAGES = {
    "dispatch": "from submit until the last rank's process is told what to run",
    "start": "until the script's first line, in the last rank",
    "import": "PyTorch",
    "context": "the device's, on a GPU",
    "group": "init_process_group",
    "all_reduce": "the first collective, on a GPU with the making of its communicator",
    "ddp": "DistributedDataParallel made, one forward and backward",
    "shutdown": "destroy_process_group and the end of the process",
    "completion": "until wait() returns",
}
_BORDERS = {"entered": "start", "imported": "import", "context": "context", "met": "group", "reduced": "all_reduce", "stepped": "ddp"}
"""The ranks' stamps, each with the stage that ends there."""

Seconds = float


@dataclass(frozen=True)
class Shape:
    """`nodes` × `devices` ranks."""

    nodes: int
    devices: int
    accelerator: str = "cpu"

    @property
    def world_size(self) -> int:
        return self.nodes * self.devices

    @property
    def name(self) -> str:
        return f"{self.nodes}x{self.devices}" + (f".{self.accelerator}" if self.accelerator != "cpu" else "")


@dataclass(frozen=True)
class Start:
    """One start: how long it took, and its stages, which add up to that."""

    seconds: Seconds
    stages: dict[str, Seconds]

    @property
    def own(self) -> Seconds:
        """What GPUlayer itself adds before and after: dispatch and completion."""
        return self.stages["dispatch"] + self.stages["completion"]


class OtherLauncher(Exception):
    """The job ran, but another launcher than the one that was asked for started its ranks: no figure of that one.

    Args:
        seconds: how long it took nevertheless.
    """

    def __init__(self, message: str, seconds: Seconds) -> None:
        super().__init__(message)
        self.seconds = seconds


# ---- by hand


def start_by_hand(shape: Shape) -> Start:
    """`torchrun` as a person starts it, one for each node at once, until the last of them has ended."""
    nonce = uuid.uuid4().hex
    argv = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={shape.devices}"]
    if shape.nodes == 1:
        argv += ["--standalone"]
    else:
        endpoint = f"--rdzv-endpoint=127.0.0.1:{_free_port()}"
        argv += [f"--nnodes={shape.nodes}", "--rdzv-backend=c10d", f"--rdzv-id={nonce}", endpoint]
    argv += [str(SCRIPT), nonce, shape.accelerator]
    with temporary_folder() as folder, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        env = os.environ | {"TMPDIR": str(folder)}  # torchrun leaves a folder behind
        if shape.accelerator == "cpu":
            env["CUDA_VISIBLE_DEVICES"] = ""  # as in a cpu job of GPUlayer
        began = time.monotonic()
        with _processes([argv] * shape.nodes, env=env, stdout=out, stderr=err) as processes:
            codes = [process.wait() for process in processes]
        ended = time.monotonic()
        out.seek(0)
        err.seek(0)
        assert codes == [0] * shape.nodes, f"torchrun by hand left with {codes}:\n{err.read()[-4000:]}"
        printed = out.read().splitlines()
    return _split(_checked(printed, nonce, shape), began=began, ended=ended)


@contextlib.contextmanager
def _processes(commands: Sequence[list[str]], **options: Any) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are ended when this is left, or when they hang: torchrun passes SIGTERM on to its ranks."""
    started: list[subprocess.Popen[str]] = []

    def end_all() -> None:
        for process in started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)

    deadline = threading.Timer(START_SECONDS, end_all)
    deadline.daemon = True
    try:
        started.extend(subprocess.Popen(argv, text=True, stdin=subprocess.DEVNULL, **options) for argv in commands)
        deadline.start()
        yield started
    finally:
        deadline.cancel()
        end_all()
        for process in started:
            process.wait()


def _free_port() -> int:
    """A port that nobody has at this moment; a person would look for one the same way."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ---- as a job


def start_as_job(client: gpulayer.Client, shape: Shape, launcher: str) -> Start:
    """The same script as a job, from submit until `wait()` returns.

    Raises:
        OtherLauncher: its ranks were not started as asked.
        TimeoutError: it hangs.
    """
    nonce = uuid.uuid4().hex
    spec = gpulayer.DistributedJob(
        script=SCRIPT.name,
        args=(nonce, shape.accelerator),
        nodes=shape.nodes,
        devices=shape.devices,
        accelerator=shape.accelerator,
        launcher=launcher,
    )
    source = Bundle({SCRIPT.name: SCRIPT})
    began = time.monotonic()
    job = client.submit(spec, source=source)
    try:
        job.wait(START_SECONDS)
    except TimeoutError:
        job.cancel(force=True)
        raise
    ended = time.monotonic()
    assert job.status.state is gpulayer.JobState.SUCCEEDED, job.status
    ranks = _checked([line.text for line in job.logs() if line.stream == "stdout"], nonce, shape)
    outcomes = [outcome for task in job.status.tasks for outcome in task.ranks]
    assert len(outcomes) == shape.world_size, job.status
    if any(outcome.launcher != launcher for outcome in outcomes):
        found = sorted({f"{outcome.launcher} ({outcome.cold_reason or 'no reason given'})" for outcome in outcomes})
        raise OtherLauncher(f"{launcher} was asked for, and its ranks were started by {', '.join(found)}", ended - began)
    launched, left = zip(*(_on_this_clock(task, ranks) for task in job.status.tasks), strict=True)
    return _split(ranks, began=began, launched=max(launched), left=max(left), ended=ended)


def _on_this_clock(task: TaskStatus, ranks: list[dict[str, Any]]) -> tuple[Seconds, Seconds]:
    """When a task's last process was told what to run, and when its last one had ended, on the machine's clock.

    The worker's clock is the machine's, less the moment that the assignment came in. That moment is before each rank's first line
    by its mark `entered` at least, and after each rank's last by `returned` at most; it lies between, and the two are close.
    """
    stamps = {rank["rank"]: rank["stamps"] for rank in ranks}
    latest = min(stamps[outcome.rank]["entered"] - _mark(outcome, "entered") for outcome in task.ranks)
    earliest = max(stamps[outcome.rank]["left"] - _mark(outcome, "returned") for outcome in task.ranks)
    assert earliest <= latest + 0.001, f"the marks and the ranks' own stamps disagree: {earliest} > {latest}"
    taken_in = (earliest + latest) / 2
    marks = [(_mark(outcome, "launched"), _mark(outcome, "ended")) for outcome in task.ranks]
    return taken_in + max(launched for launched, _ in marks), taken_in + max(ended for _, ended in marks)


def _mark(outcome: RankOutcome, name: str) -> Seconds:
    assert name in outcome.marks, f"rank {outcome.rank} has no mark {name!r}, only {sorted(outcome.marks)}"
    return outcome.marks[name]


# ---- both


def _checked(printed: list[str], nonce: str, shape: Shape) -> list[dict[str, Any]]:
    """What the ranks printed, in their order, when all of it is right."""
    ranks = sorted((json.loads(line) for line in printed if line.startswith("{")), key=lambda rank: rank["rank"])
    world_size = shape.world_size
    assert [rank["rank"] for rank in ranks] == list(range(world_size)), printed
    for rank in ranks:
        assert rank["nonce"] == nonce, rank
        assert rank["world_size"] == world_size, rank
        assert rank["sum"] == sum(range(world_size)), rank
        assert abs(rank["gradient"] - sum(range(world_size)) / world_size) < 1e-6, rank
    return ranks


def _split(
    ranks: list[dict[str, Any]], *, began: Seconds, ended: Seconds, launched: Seconds | None = None, left: Seconds | None = None
) -> Start:
    """The stages between the last rank's borders; without the worker's marks, what lies outside goes to `start` and `shutdown`."""
    borders = {"dispatch": launched} if launched is not None else {}
    borders |= {stage: max(rank["stamps"][name] for rank in ranks) for name, stage in _BORDERS.items() if name in ranks[0]["stamps"]}
    borders |= {"shutdown": left, "completion": ended} if left is not None else {"shutdown": ended}
    stages: dict[str, Seconds] = {}
    before = began
    for stage, at in borders.items():
        stages[stage] = at - before
        before = at
    return Start(ended - began, stages)
