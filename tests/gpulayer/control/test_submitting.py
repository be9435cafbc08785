"""Which kind of accelerator a job is fixed to, and what is refused at the door."""

from __future__ import annotations

import pytest
from support.control import TalkingWorker, command, devices, distributed, open_control_plane, run, status, submit

from gpulayer.errors import Unplaceable
from gpulayer.states import JobState

REAL_GPU = devices("cuda:1", simulated=False)


def test_auto_goes_to_the_living_whatever_was_here_before(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            for gone in (REAL_GPU, devices("cuda:1")):
                await (await TalkingWorker.join(plane, "gone", devices=gone)).leave()
            await TalkingWorker.join(plane, offers="cpu:2")
            job = await submit(plane)
            assert (job.accelerator, job.waiting_for) == ("cpu", "starting on a")

    run(check())


def test_auto_waits_for_a_busy_accelerator_that_is_alive(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            await TalkingWorker.join(plane, devices=REAL_GPU)
            await TalkingWorker.join(plane, "b", offers="cpu:2")
            await submit(plane)
            assert (await submit(plane)).waiting_for == "needs 1 × cuda; free: none"

    run(check())


def test_auto_goes_where_what_the_job_requires_is(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            await TalkingWorker.join(plane, "bare", devices=REAL_GPU, frameworks={"python": "3.11"})
            await TalkingWorker.join(plane, "with torch", offers="cpu:2")
            assert (await submit(plane, command(requires=("torch",)))).accelerator == "cpu"
            assert (await submit(plane)).accelerator == "cuda"

    run(check())


def test_where_no_living_worker_could_hold_it_what_was_seen_decides_real_devices_first(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            await (await TalkingWorker.join(plane, "simulated", offers="cuda:4")).leave()
            await (await TalkingWorker.join(plane, "real", devices=devices("cpu:2", simulated=False))).leave()
            await TalkingWorker.join(plane, "small", offers="cpu:1")
            assert (await submit(plane, command(devices=2))).accelerator == "cpu"
            assert (await submit(plane, command(devices=3))).accelerator == "cuda"
            with pytest.raises(Unplaceable) as refused:
                await submit(plane, command(devices=5))
            assert refused.value.found == "1 worker with 1 × cpu; 1 worker with 2 × cpu; 1 worker with 4 × simulated cuda"

    run(check())


def test_simulated_and_real_devices_never_add_up_in_what_was_seen(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            joined = [
                await TalkingWorker.join(plane, "real", devices=REAL_GPU),
                await TalkingWorker.join(plane, "pretended", offers="cuda:1"),
            ]
            assert (await submit(plane, distributed(nodes=2, accelerator="cuda"))).accelerator == "cuda"
            for worker in joined:
                await worker.leave()
            with pytest.raises(Unplaceable, match="1 worker with 1 × cuda; 1 worker with 1 × simulated cuda"):
                await submit(plane, distributed(nodes=2, accelerator="cuda"))

    run(check())


def test_ranks_that_torchrun_starts_need_torch_whoever_submits_them(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            early = await submit(plane, distributed())
            await TalkingWorker.join(plane, "bare", offers="cpu:2", frameworks={"python": "3.11"})
            assert (await status(plane, early.job_id)).waiting_for == "needs torch; no worker provides it"
            with pytest.raises(Unplaceable) as refused:
                await submit(plane, distributed())
            assert (refused.value.asked, refused.value.found) == ("torch", "no worker with torch")
            assert "gpulayer worker start" in refused.value.fix
            assert (await submit(plane)).waiting_for == "starting on bare"

            worker = await TalkingWorker.join(plane, "equipped", offers="cpu:1")
            assert (await worker.take()).job_id == early.job_id
            await worker.leave()
            assert (await submit(plane, distributed())).state is JobState.QUEUED  # such a worker was here, and may come back

    run(check())


def test_what_some_workers_have_in_part_is_named(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            await TalkingWorker.join(plane, "a", frameworks={"torch": "2.13.0"})
            await TalkingWorker.join(plane, "b", frameworks={"jax": "0.6"})
            for requires, found in (
                (("torch", "jax"), "workers with some of that, none with all"),
                (("torch", "cupy", "dask"), "no worker with cupy or dask"),
            ):
                with pytest.raises(Unplaceable) as refused:
                    await submit(plane, command(requires=requires))
                assert refused.value.found == found

    run(check())
