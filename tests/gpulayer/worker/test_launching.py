"""Who starts a task's ranks, by what was asked, on what, and what the worker has."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from gpulayer.errors import Interrupted
from gpulayer.protocol import Device, JobId, TaskId
from gpulayer.runtime.process import Keeper
from gpulayer.runtime.task_plan import TaskPlan
from gpulayer.spec import CommandJob, DistributedJob
from gpulayer.worker.launching import make_zygote, prepare_ranks


class Zygote:
    """One that is ready, or says why not."""

    python = "python"

    def __init__(self, refusal=None, *, is_ready=True) -> None:
        self.refusal = refusal
        self.is_ready = is_ready
        self.started = 0

    def start(self) -> None:
        self.started += 1

    def wait_ready(self, give_up) -> str | None:
        return "given up" if give_up() else self.refusal


class Meeting:
    """What the nodes of an attempt tell each other."""

    def __init__(self) -> None:
        self.published: list[tuple[str, int]] = []

    def publish(self, address, port, give_up) -> None:
        self.published.append((address, port))

    def read(self, give_up) -> tuple[str, int]:
        if give_up.is_set():
            raise Interrupted("stopped")
        return "10.0.0.1", 7


def plan(spec, *, accelerator="cpu", node=0, nodes=1, start="auto", python="python") -> TaskPlan:
    return TaskPlan(
        spec=spec,
        task_id=TaskId("j.0"),
        attempt=1,
        job_id=JobId("j"),
        node=node,
        nodes=nodes,
        devices=tuple(Device(id=f"{accelerator}:{index}", accelerator=accelerator, index=index) for index in range(spec.devices)),
        accelerator=accelerator,
        python=python,
        workspace=Path("/nowhere"),
        env={"GPULAYER_ADDRESS": "127.0.0.1"},
        start=start,
    )


def ranks(launcher, **options) -> DistributedJob:
    return DistributedJob(script="main.py", devices=2, launcher=launcher, **options)


def prepare(plan, zygote=None, meeting=None, stopped=None):
    return prepare_ranks(plan, zygote, meeting or Meeting(), stopped or threading.Event())


@pytest.mark.parametrize(
    ("asked", "accelerator", "zygote", "launcher", "reason"),
    [
        ("torchrun", "cpu", Zygote(), "torchrun", None),
        ("direct", "cuda", Zygote(), "direct", None),
        ("warm", "cpu", Zygote(), "warm", None),
        ("auto", "cpu", Zygote(), "warm", None),
        ("auto", "cuda", Zygote(), "torchrun", "a warm start has not been seen to work on cuda; launcher='warm' tries it"),
        ("warm", "cuda", Zygote(), "warm", None),
        ("auto", "cpu", Zygote("its zygote has died"), "direct", "its zygote has died"),
        ("warm", "cpu", None, "direct", "this worker makes no zygote (--warm never)"),
    ],
)
def test_who_starts_the_ranks(asked, accelerator, zygote, launcher, reason):
    prepared = prepare(plan(ranks(asked), accelerator=accelerator), zygote)
    with prepared.meeting or contextlib.nullcontext():
        assert (prepared.launcher, prepared.cold_reason) == (launcher, reason)
        assert (prepared.meeting is None) == (launcher == "torchrun")


def test_a_worker_that_starts_all_cold_starts_no_rank_warm():
    prepared = prepare(plan(ranks("auto"), start="cold"), Zygote())
    with prepared.meeting:
        assert (prepared.launcher, prepared.cold_reason) == ("direct", "GPULAYER_START=cold")


def test_where_nodes_meet():
    meeting = Meeting()
    with prepare(plan(ranks("direct", nodes=2), nodes=2), meeting=meeting).meeting as first:
        assert meeting.published == [("127.0.0.1", first.port)]
    second = prepare(plan(ranks("direct", nodes=2), node=1, nodes=2), meeting=meeting).meeting
    assert (second.address, second.port, second.listener) == ("10.0.0.1", 7, None)


def test_a_task_that_is_to_be_stopped_waits_for_nothing():
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(Interrupted):
        prepare(plan(ranks("warm", nodes=2), node=1, nodes=2), Zygote(), stopped=stopped)


@pytest.mark.parametrize(
    ("options", "is_ready", "accelerator", "launcher", "started"),
    [
        ({"requires": ("torch",)}, True, "cpu", "warm", 1),
        ({"requires": ("torch",)}, False, "cpu", None, 1),
        ({"requires": ("torch",)}, True, "cuda", None, 0),
        ({}, True, "cpu", None, 0),
    ],
)
def test_a_command_starts_warm_where_it_needs_torch_and_need_not_wait(options, is_ready, accelerator, launcher, started):
    zygote = Zygote(is_ready=is_ready)
    prepared = prepare(plan(CommandJob(["python", "main.py"], **options), accelerator=accelerator), zygote)
    assert (prepared.launcher, prepared.meeting, zygote.started) == (launcher, None, started)


def test_when_a_worker_makes_its_zygote(tmp_path, monkeypatch):
    (tmp_path / "site-packages").mkdir()
    for name in ("torch", "threadpoolctl"):
        (tmp_path / "site-packages" / name).mkdir()
        (tmp_path / "site-packages" / name / "__init__.py").write_text("")
    for name in ("distributed", "_dynamo", "nn/parallel"):
        folder = tmp_path / "site-packages" / "torch" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
    (tmp_path / "site-packages" / "torch" / "nn" / "__init__.py").write_text("")
    (tmp_path / "site-packages" / "mine.py").write_text(f"open({str(tmp_path / 'mine')!r}, 'w').close()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site-packages"))
    keeper = Keeper.start()
    assert make_zygote(keeper, warm="never", preload=(), devices=2) is None
    first = make_zygote(keeper, warm="first", preload=(), devices=2)
    assert not first.is_ready
    ahead = make_zygote(keeper, warm="ahead", preload=("mine",), devices=2)
    assert ahead.wait_ready(lambda: False) is None
    assert (tmp_path / "mine").exists()
    ahead.close()
    keeper.close()


def test_ranks_of_a_job_with_requirements_start_under_the_interpreter_that_these_gave_them() -> None:
    zygote = Zygote()
    prepared = prepare(plan(ranks("warm"), python="/environment/bin/python"), zygote)
    with prepared.meeting:
        assert (prepared.launcher, prepared.cold_reason) == ("direct", "its requirements give it an interpreter of its own")
    command = prepare(plan(CommandJob(["python"], requires=["torch"]), python="/environment/bin/python"), zygote)
    assert (command.launcher, command.cold_reason) == (None, "its requirements give it an interpreter of its own")
    assert zygote.started == 0
