"""What workers say about their attempts: where ranks meet, what is over."""

from __future__ import annotations

import asyncio

import pytest
from support.control import USER, TalkingWorker, distributed, held_on, open_control_plane, run, submit

from gpulayer.errors import AttemptLost, InvalidSpec
from gpulayer.protocol import Digest, Rendezvous, SubmitJob, TaskEnvironment


async def two_nodes(plane):
    workers = [await TalkingWorker.join(plane, name) for name in "ab"]
    job = await submit(plane, distributed(nodes=2, devices=2, retries=1))
    return job, workers, [await worker.take() for worker in workers]


def about(worker, task):
    return {"task_id": task.task_id, "attempt": task.attempt, "worker_id": worker.worker_id, "boot": worker.boot}


def test_a_node_that_waits_is_told_where_its_ranks_meet(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            job, workers, tasks = await two_nodes(plane)
            assert await plane.read_rendezvous(**about(workers[1], tasks[1])) == Rendezvous()
            held = asyncio.create_task(plane.read_rendezvous(**about(workers[1], tasks[1]), wait=20))
            await held_on(plane, f"rendezvous/{job.job_id}.0")
            await plane.publish_rendezvous(**about(workers[0], tasks[0]), address="10.0.0.1", port=4711)
            assert await asyncio.wait_for(held, 10) == Rendezvous(address="10.0.0.1", port=4711)
            await plane.publish_rendezvous(**about(workers[0], tasks[0]), address="10.0.0.1", port=4712)
            assert (await plane.read_rendezvous(**about(workers[1], tasks[1]), wait=20)).port == 4712

    run(check())


def test_a_meeting_place_belongs_to_its_attempt_and_a_wait_ends_with_it(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            job, workers, tasks = await two_nodes(plane)
            await plane.publish_rendezvous(**about(workers[0], tasks[0]), address="10.0.0.1", port=4711)
            for worker, task in zip(workers, tasks, strict=True):
                await worker.finish(task, "failed")
            with pytest.raises(AttemptLost):
                await plane.read_rendezvous(**about(workers[1], tasks[1]), wait=20)
            again = [await worker.take() for worker in workers]
            held = asyncio.create_task(plane.read_rendezvous(**about(workers[1], again[1]), wait=20))
            await held_on(plane, f"rendezvous/{job.job_id}.0")
            await workers[1].leave()
            with pytest.raises(AttemptLost):
                await asyncio.wait_for(held, 10)

    run(check())


def test_a_heartbeat_names_what_is_over(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            _, workers, tasks = await two_nodes(plane)
            assert (await workers[0].heartbeat(tasks[0])).lost == ()
            assert [ref.task_id for ref in (await workers[0].heartbeat(*tasks)).lost] == [tasks[1].task_id]

    run(check())


@pytest.mark.parametrize("task_id", ["", "j1", "j1.", "j1.x", ".0", "j1.-1"])
def test_a_task_id_that_is_none_is_refused(tmp_path, task_id):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            with pytest.raises(InvalidSpec):
                await plane.read_rendezvous(task_id=task_id, attempt=1, worker_id="w", boot="b")

    run(check())


def test_what_the_ranks_of_a_node_found_is_on_record_when_it_has_ended(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            job, workers, tasks = await two_nodes(plane)
            environment = TaskEnvironment(python="3.12.1", packages={"torch": "2.13.0"}, differences=("numpy 2 there, 1 here",))
            await plane.finish_task(**about(workers[1], tasks[1]), state="succeeded", environment=environment)
            await plane.finish_task(**about(workers[0], tasks[0]), state="succeeded")
            record = await plane.wait_job(job_id=job.job_id)
            assert [task.environment for task in record.tasks] == [None, environment]

    run(check())


@pytest.mark.parametrize(
    ("second", "same"), [({}, True), ({"python": "/other/python"}, False), ({"boot_id": "another", "address": "10.0.0.2"}, False)]
)
def test_a_node_is_told_whether_node_0_says_all_that_is_to_be_said(tmp_path, second, same):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            plane._artifacts.first_missing = lambda digests: None
            first = {"address": "10.0.0.1"}
            workers = [await TalkingWorker.join(plane, name, **fields) for name, fields in (("a", first), ("b", {**first, **second}))]
            request = SubmitJob(spec=distributed(nodes=2, devices=2), idempotency_key="k", source=Digest("0" * 64))
            await plane.submit(request, USER)
            found = [await worker.take() for worker in workers]
            assert {assignment.node: assignment.is_as_node_0 for assignment in found} == {0: False, 1: same}

    run(check())
