"""Workers that come, come back, fall silent and go."""

from __future__ import annotations

import asyncio

import pytest
from support.control import USER, FakeClock, TalkingWorker, command, distributed, held_on, let_pass, open_control_plane, run, status, submit

from gpulayer.calls import CALLS, Role
from gpulayer.control import Caller
from gpulayer.errors import AttemptLost, Conflict, NotAuthorized, ProtocolMismatch, UnknownWorker
from gpulayer.protocol import Device, DrainWorker, ListWorkers
from gpulayer.settings import BUSY_LEASE_SECONDS, HEARTBEAT_SECONDS, IDLE_LEASE_SECONDS, ORPHAN_LIMIT_SECONDS
from gpulayer.states import AttemptState, JobState


async def states(plane):
    listed = await plane.handle(CALLS["list_workers"], ListWorkers(include_gone=True), USER)
    return {worker.name: worker.state for worker in listed.workers}


async def everything_is_refused(worker, assignment):
    for say in (
        worker.start(assignment),
        worker.log(assignment, b"late"),
        worker.report(assignment, "late"),
        worker.finish(assignment),
    ):
        with pytest.raises(AttemptLost):
            await say


def test_a_silent_busy_worker_loses_its_attempt_and_every_later_write_is_refused(tmp_path):
    async def check():
        clock = FakeClock()
        async with open_control_plane(tmp_path / "home", clock=clock) as plane:
            worker = await TalkingWorker.join(plane)
            job = await submit(plane)
            assignment = await worker.take_and_start()
            await let_pass(clock, plane, BUSY_LEASE_SECONDS - 2)
            assert (await status(plane, job.job_id)).state is JobState.RUNNING
            since = clock.now()
            await let_pass(clock, plane, 6)
            ended = await status(plane, job.job_id)
            assert ended.state is JobState.FAILED
            assert (ended.failure.reason, ended.failure.worker, ended.failure.node) == ("lost", "a", 0)
            assert "has not been heard since 2023-11-14" in ended.failure.message
            assert since > 0
            assert ended.tasks[0].state is AttemptState.LOST
            assert await states(plane) == {"a": "gone"}
            await everything_is_refused(worker, assignment)
            assert (await worker.heartbeat(assignment)).lost[0].task_id == assignment.task_id
            assert await states(plane) == {"a": "alive"}
            assert (await status(plane, job.job_id)).state is JobState.FAILED

    run(check())


def test_heartbeats_keep_an_attempt(tmp_path):
    async def check():
        clock = FakeClock()
        async with open_control_plane(tmp_path / "home", clock=clock) as plane:
            worker = await TalkingWorker.join(plane)
            await submit(plane)
            assignment = await worker.take_and_start()
            for _ in range(20):
                await let_pass(clock, plane, HEARTBEAT_SECONDS)
                assert (await worker.heartbeat(assignment)).lost == ()
            await worker.finish(assignment)

    run(check())


def test_a_lost_node_stops_its_siblings_and_the_job_is_retried(tmp_path):
    async def check():
        clock = FakeClock()
        async with open_control_plane(tmp_path / "home", clock=clock) as plane:
            lost, other = await TalkingWorker.join(plane, "lost"), await TalkingWorker.join(plane, "other")
            job = await submit(plane, distributed(nodes=2, devices=2, retries=1))
            await lost.take_and_start()
            sibling = await other.take_and_start()
            for _ in range(5):
                await let_pass(clock, plane, 4)
                await other.heartbeat(sibling)
            running = await status(plane, job.job_id)
            assert (running.state, running.failure.worker) == (JobState.RUNNING, "lost")
            assert [stop.reason for stop in (await other.acquire()).stops] == ["collateral"]
            await other.finish(sibling, "cancelled")
            queued = await status(plane, job.job_id)
            assert (queued.state, queued.attempt, queued.failure) == (JobState.QUEUED, 2, None)
            third = await TalkingWorker.join(plane, "third")
            for worker in (other, third):
                await worker.finish(await worker.take_and_start())
            assert (await status(plane, job.job_id)).state is JobState.SUCCEEDED

    run(check())


def test_a_control_plane_opened_for_a_look_fails_nobodys_job(tmp_path):
    async def check():
        clock = FakeClock()
        async with open_control_plane(tmp_path / "home", clock=clock) as plane:
            worker = await TalkingWorker.join(plane)
            job = await submit(plane)
            assignment = await worker.take_and_start()
        async with open_control_plane(tmp_path / "home", clock=clock) as look:
            await let_pass(clock, look, ORPHAN_LIMIT_SECONDS - 60, step=4)
            assert (await status(look, job.job_id)).state is JobState.RUNNING
            await let_pass(clock, look, 120, step=4)
            assert (await status(look, job.job_id)).failure.reason == "lost"
            worker.control_plane = look
            await everything_is_refused(worker, assignment)

    run(check())


def test_a_worker_started_again_loses_what_the_earlier_boot_held(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            first = await TalkingWorker.join(plane)
            job = await submit(plane, command(retries=1))
            assignment = await first.take_and_start()
            held = asyncio.create_task(first.acquire(wait=20))
            await held_on(plane, f"worker/{first.worker_id}")
            second = await TalkingWorker.join(plane, boot="boot-2", worker_id=first.worker_id)
            assert second.worker_id == first.worker_id
            with pytest.raises(AttemptLost):
                await asyncio.wait_for(held, 10)
            await everything_is_refused(first, assignment)
            with pytest.raises(AttemptLost):
                await first.heartbeat(assignment)
            again = await second.take_and_start()
            assert again.attempt == 2
            assert (await status(plane, job.job_id)).attempt == 2  # re-queued once

    run(check())


def test_the_same_boot_registers_again_and_keeps_what_it_holds(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            await submit(plane)
            assignment = await worker.take_and_start()
            again = await TalkingWorker.join(plane, worker_id=worker.worker_id)
            await again.finish(assignment)

    run(check())


def test_leaving_loses_attempts_at_once_and_ends_the_held_acquire(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            job = await submit(plane)
            assignment = await worker.take_and_start()
            held = asyncio.create_task(worker.acquire(wait=20))
            await held_on(plane, f"worker/{worker.worker_id}")
            await worker.leave()
            orders = await asyncio.wait_for(held, 10)
            assert (orders.assignments, orders.drain) == ((), True)
            ended = await status(plane, job.job_id)
            assert (ended.state, ended.failure.reason, ended.failure.message) == (JobState.FAILED, "lost", "worker 'a' left")
            assert await states(plane) == {"a": "gone"}
            await everything_is_refused(worker, assignment)
            await worker.leave()
            with pytest.raises(AttemptLost):
                await worker.acquire()

    run(check())


def test_a_silent_idle_worker_is_given_nothing_until_it_speaks(tmp_path):
    async def check():
        clock = FakeClock()
        async with open_control_plane(tmp_path / "home", clock=clock) as plane:
            worker = await TalkingWorker.join(plane)
            clock.advance(IDLE_LEASE_SECONDS + 1)
            job = await submit(plane)
            assert job.tasks == ()
            assert job.waiting_for.startswith("no worker yet")
            assert await states(plane) == {"a": "gone"}
            assert (await worker.take()).job_id == job.job_id
            assert await states(plane) == {"a": "alive"}

    run(check())


def test_a_draining_worker_finishes_and_takes_nothing_more(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane, offers="cpu:2")
            await submit(plane)
            assignment = await worker.take_and_start()
            held = asyncio.create_task(worker.acquire(wait=20))
            await held_on(plane, f"worker/{worker.worker_id}")
            await plane.handle(CALLS["drain_worker"], DrainWorker(worker_id=worker.worker_id), USER)
            assert (await asyncio.wait_for(held, 10)).drain
            waiting = await submit(plane)
            assert waiting.waiting_for == "needs 1 × cpu; every worker is draining"
            held = asyncio.create_task(worker.acquire(free=0, wait=0.05))  # told once: it holds
            assert (await held).drain
            await TalkingWorker.join(plane, worker_id=worker.worker_id)  # the same boot comes back, and still drains
            assert await states(plane) == {"a": "draining"}
            await worker.finish(assignment)
            with pytest.raises(UnknownWorker):
                await plane.drain_worker(worker_id="w0")

    run(check())


def test_a_boot_is_told_once_that_it_drains_and_again_when_it_comes_back(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            await plane.drain_worker(worker_id=worker.worker_id)
            for _ in range(2):
                assert (await asyncio.wait_for(worker.acquire(wait=30), 10)).drain
                held = asyncio.create_task(worker.acquire(wait=30))
                await held_on(plane, f"worker/{worker.worker_id}")
                await plane._database.read(lambda _: None)
                assert not held.done()
                held.cancel()
                await asyncio.gather(held, return_exceptions=True)
                await TalkingWorker.join(plane, worker_id=worker.worker_id)

    run(check())


def test_what_a_draining_boot_was_told_is_forgotten_once_it_is_gone(tmp_path):
    async def check():
        clock = FakeClock()
        async with open_control_plane(tmp_path / "home", clock=clock) as plane, open_control_plane(tmp_path / "home", clock=clock) as other:
            workers = [await TalkingWorker.join(plane, name, boot=f"boot-{name}") for name in "abcd"]
            for worker in workers:
                await plane.drain_worker(worker_id=worker.worker_id)
                assert (await worker.acquire()).drain
            assert len(plane._told_to_drain) == 4
            stays, leaves, leaves_elsewhere, again = workers
            await leaves.leave()
            await TalkingWorker.join(other, "c", boot="boot-c2", worker_id=leaves_elsewhere.worker_id)
            await TalkingWorker.join(plane, "d", boot="boot-d2", worker_id=again.worker_id)
            await plane.check_leases()
            assert plane._told_to_drain == {(stays.worker_id, stays.boot)}
            await let_pass(clock, plane, IDLE_LEASE_SECONDS + 2)
            await plane.check_leases()
            assert plane._told_to_drain == set()

    run(check())


@pytest.mark.parametrize(("spoken", "upgraded"), [(3, "control plane"), (-1, "worker")])
def test_a_worker_of_a_distant_protocol_is_refused(tmp_path, spoken, upgraded):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            with pytest.raises(ProtocolMismatch, match=f"Upgrade the {upgraded}"):
                await TalkingWorker.join(plane, protocol=spoken)
            await TalkingWorker.join(plane, protocol=2)
            await TalkingWorker.join(plane, protocol=0)

    run(check())


def test_workers_of_one_host_divide_its_devices(tmp_path):
    async def check():
        def gpu(name):
            return Device(id=f"cuda:GPU-{name}", accelerator="cuda", index=0)

        async with open_control_plane(tmp_path / "home") as plane:
            first = await TalkingWorker.join(plane, "first", devices=(gpu("1"),))
            with pytest.raises(Conflict, match="first"):
                await TalkingWorker.join(plane, "second", devices=(gpu("1"), gpu("2")))
            await TalkingWorker.join(plane, "second", devices=(gpu("2"),))
            await TalkingWorker.join(plane, "elsewhere", devices=(gpu("1"),), boot_id="host-2")
            await TalkingWorker.join(plane, "first", devices=(gpu("1"),), worker_id=first.worker_id, boot="boot-2")
            await TalkingWorker.join(plane, "cpu", offers="cpu:2")
            await TalkingWorker.join(plane, "cpu too", offers="cpu:2")

    run(check())


def test_a_worker_that_never_was_here_is_unknown(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            with pytest.raises(UnknownWorker):
                await TalkingWorker.join(plane, worker_id="w0", caller=Caller(role=Role.CLIENT, user="ada"))
            with pytest.raises(UnknownWorker):
                await TalkingWorker(plane, "a", "w0", "boot-1").heartbeat()

    run(check())


def test_a_placement_that_its_dead_worker_never_took_up_goes_elsewhere_at_no_retry(tmp_path):
    async def check():
        clock = FakeClock()
        async with open_control_plane(tmp_path / "home", clock=clock) as plane:
            await TalkingWorker.join(plane, "dead")
            job = await submit(plane, command(devices=2))
            alive = await TalkingWorker.join(plane, "alive")
            for _ in range(16):
                await let_pass(clock, plane, 4)
                await alive.acquire()
            assignment = await alive.take()
            assert (assignment.job_id, assignment.attempt) == (job.job_id, 2)
            await alive.start(assignment)
            await alive.leave()
            assert (await status(plane, job.job_id)).state is JobState.FAILED

    run(check())


def test_only_workers_that_speak_to_this_control_plane_are_its_local_ones(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as one, open_control_plane(tmp_path / "home") as other:
            worker = await TalkingWorker.join(one, local=True)
            await TalkingWorker.join(one, "far", boot="boot-far")
            assert [status.local for status in (await one.list_workers()).workers] == [True, False]
            assert [status.local for status in (await other.list_workers()).workers] == [False, False]
            worker.control_plane = other
            await worker.heartbeat()
            assert [status.local for status in (await other.list_workers()).workers] == [True, False]

    run(check())


def test_a_client_registers_over_a_worker_of_its_own_on_the_same_host_only(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            owner, other = Caller(role=Role.CLIENT, user="ada"), Caller(role=Role.CLIENT, user="grace")
            worker = await TalkingWorker.join(plane, caller=owner)
            await submit(plane)
            assignment = await worker.take_and_start()
            for caller, fields in ((other, {}), (owner, {"boot_id": "host-2"})):
                with pytest.raises(NotAuthorized, match="another user or host"):
                    await TalkingWorker.join(plane, "thief", boot="boot-2", worker_id=worker.worker_id, caller=caller, **fields)
            assert (await worker.heartbeat(assignment)).lost == ()
            back = await TalkingWorker.join(plane, boot="boot-2", worker_id=worker.worker_id, caller=owner)
            assert back.worker_id == worker.worker_id

    run(check())
