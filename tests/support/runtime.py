"""Runs tasks the way a worker does, with nothing above them: a workspace, a plan, a recorder of what is told."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

from gpulayer import settings
from gpulayer.protocol import Device, Failure, JobId, TaskId
from gpulayer.runtime.direct import open_meeting
from gpulayer.runtime.process import Keeper
from gpulayer.runtime.rank_environment import LOOPBACK, task_environment
from gpulayer.runtime.task_plan import TaskPlan, TaskResult
from gpulayer.runtime.task_process import TaskProcess
from gpulayer.runtime.zygote import Zygote
from gpulayer.spec import CommandJob, DistributedJob

RESULT_SECONDS = 60.0


class Meeting:
    """Where the nodes of one attempt find node 0, in the place of the control plane."""

    def __init__(self) -> None:
        self._known = threading.Event()
        self._address: tuple[str, int] = ("", 0)

    def publish(self, address: str, port: int) -> None:
        self._address = (address, port)
        self._known.set()

    def read(self) -> tuple[str, int]:
        assert self._known.wait(60)
        return self._address


class RecordedEvents:
    """Keeps all that a task process tells."""

    def __init__(self, meeting: Meeting | None = None) -> None:
        self.output: dict[tuple[int | None, str], bytearray] = {}
        self.records: list[tuple[int, str, dict[str, Any]]] = []
        self.failures: list[Failure] = []
        self.started = threading.Event()
        self._meeting = meeting or Meeting()
        self._changed = threading.Condition()

    def on_output(self, rank, stream, data) -> None:
        with self._changed:
            self.output.setdefault((rank, stream), bytearray()).extend(data)
            self._changed.notify_all()

    def on_records(self, rank, records, lost) -> None:
        with self._changed:
            self.records.extend((rank, kind, data) for kind, _, data in records)
            self._changed.notify_all()

    def on_started(self, at: float) -> None:
        self.started_at = at
        self.started.set()

    def on_lasting(self) -> None:
        assert self.started.is_set()

    def on_failure(self, failure: Failure) -> None:
        self.failures.append(failure)

    def publish_rendezvous(self, address: str, port: int) -> None:
        self._meeting.publish(address, port)

    def read_rendezvous(self) -> tuple[str, int]:
        return self._meeting.read()

    def text(self, rank: int | None = 0, stream: str = "stdout") -> str:
        with self._changed:
            return bytes(self.output.get((rank, stream), b"")).decode()

    def wait_for(self, text: str, rank: int | None = 0, stream: str = "stdout") -> None:
        """Block until a rank has printed this."""
        with self._changed:
            found = self._changed.wait_for(lambda: text.encode() in self.output.get((rank, stream), b""), RESULT_SECONDS)
        assert found, f"{text!r} was not printed; so far: {self.output}"


class RunningTask:
    """A started task process with its recorder."""

    def __init__(self, process: TaskProcess, events: RecordedEvents, workspace: Path) -> None:
        self.process = process
        self.events = events
        self.workspace = workspace

    def result(self, timeout: float = RESULT_SECONDS) -> TaskResult:
        return self.process.wait(timeout)


def start_task(
    keeper: Keeper,
    workspace: Path,
    files: dict[str, str],
    *,
    argv: list[str] | None = None,
    script: str | None = None,
    devices: int = 1,
    node: int = 0,
    nodes: int = 1,
    meeting: Meeting | None = None,
    python: str = sys.executable,
    zygote: Zygote | None = None,
    **options,
) -> RunningTask:
    """Start a command (`argv`) or a script on ranks (`script`, under torchrun or `launcher`) in a workspace made from `files`."""
    source = workspace / "source"
    for folder in (source, workspace / "inputs", workspace / "output"):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (source / name).write_text(textwrap.dedent(text))
    spec = CommandJob(argv, **options) if argv is not None else DistributedJob(script=script, nodes=nodes, devices=devices, **options)
    granted = tuple(Device(id=f"cpu:{index}", accelerator="cpu", index=index) for index in range(devices))
    env = task_environment(
        plain_environment(),
        job_env=spec.env,
        job_id="job",
        task_id=f"job.{node}",
        attempt=1,
        node=node,
        nodes=nodes,
        devices=granted,
        accelerator="cpu",
        workspace=workspace,
        ranks_per_node=devices if argv is None else 1,
    )
    events = RecordedEvents(meeting)
    launcher = ("warm" if zygote else None) if isinstance(spec, CommandJob) else spec.launcher
    point = None
    if launcher in ("direct", "warm") and argv is None:
        point = open_meeting(node=node, nodes=nodes, address=LOOPBACK, publish=events.publish_rendezvous, read=events.read_rendezvous)
    plan = TaskPlan(
        spec=spec,
        task_id=TaskId(f"job.{node}"),
        attempt=1,
        job_id=JobId("job"),
        node=node,
        nodes=nodes,
        devices=granted,
        accelerator="cpu",
        python=python,
        workspace=workspace,
        env=env,
        start=settings.start_mode(),
        launcher=launcher,
        meeting=point,
    )
    process = TaskProcess(plan, keeper, events, zygote)
    process.start()
    return RunningTask(process, events, workspace)


def rank_argv(script: str = "main.py", *args: str) -> list[str]:
    """The command with which a notebook's 1 × 1 cell runs."""
    return ["python", "-m", "gpulayer.runtime.rank_main", script, *args]


def plain_environment() -> dict[str, str]:
    """This process's environment, without what a developer may have set for torch's threads."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "MKL_", "OPENBLAS_"))}


class WatchedProcess:
    """Holds a process's identity, so that its end is seen even if its number is used again."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._fd: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._fd = None

    def has_ended(self, within: float = 0.0) -> bool:
        if self._fd is None:
            return True
        ready, _, _ = select.select([self._fd], [], [], within)
        return bool(ready)

    def close(self) -> None:
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = None
