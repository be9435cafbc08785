"""Jobs from submit to end, as clients and workers see them."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError
from support.control import (
    USER,
    FakeClock,
    TalkingWorker,
    command,
    devices,
    distributed,
    held_on,
    open_control_plane,
    registration,
    run,
    status,
    submit,
)

from gpulayer.calls import CALLS, Role
from gpulayer.control import Caller, ControlPlane
from gpulayer.control.store import tables
from gpulayer.control.store.artifacts import ArtifactFiles
from gpulayer.control.waiters import EVERY_TOPIC
from gpulayer.errors import Conflict, Interrupted, NotAuthorized, UnknownArtifact, UnknownJob, Unplaceable
from gpulayer.protocol import (
    AcquireTask,
    CancelJob,
    Done,
    Failure,
    GetHealth,
    GetJob,
    InputFile,
    ListJobs,
    OutputFile,
    ReadEvents,
    SubmitJob,
)
from gpulayer.states import JobState


async def cancel(control_plane, job_id, **fields):
    return await control_plane.handle(CALLS["cancel"], CancelJob(job_id=job_id, **fields), USER)


def test_a_job_from_submit_to_success(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            job = await submit(plane, command(devices=2, name="first"))
            assert (job.state, job.name, job.owner, job.accelerator, job.attempt) == (JobState.QUEUED, "first", "ada", "cpu", 1)
            assert job.waiting_for == "starting on a"
            assignment = await worker.take_and_start()
            assert [device.id for device in assignment.devices] == ["cpu:0", "cpu:1"]
            assert (assignment.node, assignment.nodes, assignment.spec, assignment.accelerator) == (0, 1, job.spec, "cpu")
            running = await status(plane, job.job_id)
            assert running.state is JobState.RUNNING
            assert running.revision > job.revision
            output = OutputFile(path="weights", sha256="0" * 64, size_bytes=1)
            await worker.finish(assignment, outputs=(output,))
            ended = await status(plane, job.job_id)
            assert ended.state is JobState.SUCCEEDED
            assert ended.ended_at is not None
            assert ended.failure is None
            assert ended.tasks[0].outputs == (output,)
            (listed,) = (await plane.list_workers()).workers
            assert listed.devices_held == {}

    run(check())


def test_submit_and_first_placement_are_one_transaction(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            held = asyncio.create_task(worker.acquire(wait=20))
            await held_on(plane, f"worker/{worker.worker_id}")
            await submit(plane)
            assert len((await asyncio.wait_for(held, 10)).assignments) == 1

    run(check())


def test_the_same_key_and_request_is_the_same_job_and_another_request_a_conflict(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            first, again = await asyncio.gather(
                submit(plane, command(env={"A": "1", "B": "2"}), key="k"), submit(plane, command(env={"B": "2", "A": "1"}), key="k")
            )
            assert first.job_id == again.job_id
            with pytest.raises(Conflict, match="idempotency key"):
                await submit(plane, command(devices=2), key="k")
            other = await submit(plane, command(), key="k", caller=Caller(role=Role.CLIENT, user="grace"))
            assert other.job_id != first.job_id

    run(check())


def test_what_no_group_ever_seen_could_hold_is_refused_and_without_workers_a_job_waits(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            waiting = await submit(plane, distributed(nodes=64, devices=64))
            assert waiting.accelerator is None
            assert waiting.waiting_for == "no worker yet: start one with `gpulayer worker start`"
            worker = await TalkingWorker.join(plane, "a", offers="cpu:4")
            await TalkingWorker.join(plane, "b", offers="cpu:2")
            for spec in (distributed(nodes=2, devices=4), distributed(nodes=3), command(devices=5), command(accelerator="cuda")):
                with pytest.raises(Unplaceable) as refused:
                    await submit(plane, spec)
                assert refused.value.found == "2 workers with 2 × cpu; 1 worker with 4 × cpu"
                assert refused.value.fix
            await worker.leave()
            assert (await submit(plane, command(devices=4))).waiting_for.startswith("needs 4 × cpu")
            assert (await submit(plane, distributed(nodes=2, devices=2))).state is JobState.QUEUED

    run(check())


def test_auto_is_fixed_to_the_best_kind_seen_or_at_first_placement(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            early = await submit(plane, command())
            worker = await TalkingWorker.join(plane, devices=devices("cpu:4,cuda:2", simulated=False))
            assert (await status(plane, early.job_id)).accelerator == "cuda"
            await worker.leave()
            assert (await submit(plane, command(devices=2))).accelerator == "cuda"
            assert (await submit(plane, command(devices=3))).accelerator == "cpu"

    run(check())


def test_all_nodes_start_at_once_when_the_last_worker_comes(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            job = await submit(plane, distributed(nodes=2, devices=2))
            first = await TalkingWorker.join(plane, "a")
            assert (await first.acquire()).assignments == ()
            reason = (await status(plane, job.job_id)).waiting_for
            assert reason.startswith("needs 2 × devices of one kind on each of 2 nodes")
            second = await TalkingWorker.join(plane, "b")
            tasks = [await first.take_and_start(), await second.take_and_start()]
            assert sorted(task.node for task in tasks) == [0, 1]
            await first.finish(tasks[0])
            assert (await status(plane, job.job_id)).state is JobState.RUNNING
            held = {worker.name: dict(worker.devices_held) for worker in (await plane.list_workers()).workers}
            assert held["a"] == {}  # free while the other node still works
            await second.finish(tasks[1])
            assert (await status(plane, job.job_id)).state is JobState.SUCCEEDED

    run(check())


def test_an_assignment_is_repeated_until_it_is_received(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            await submit(plane)
            first = await worker.acquire(wait=20)
            again = await worker.acquire(wait=20)
            assert first == again
            assert (await worker.acquire(received=first.assignments)).assignments == ()
            assert (await worker.acquire()).assignments == ()

    run(check())


def test_a_call_cut_in_the_moment_of_its_answer_loses_no_assignment(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            for _ in range(20):
                held = asyncio.create_task(worker.acquire(wait=20))
                job = await submit(plane)
                held.cancel()
                await asyncio.gather(held, return_exceptions=True)
                await worker.finish(await worker.take_and_start())
                assert (await status(plane, job.job_id)).state is JobState.SUCCEEDED
            assert len(plane.waiters) <= 1  # the lease monitor's

    run(check())


def test_a_worker_without_a_free_slot_hears_orders_only(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            running = await worker_runs(plane, worker)
            await submit(plane)
            assert (await worker.acquire(free=0)).assignments == ()
            held = asyncio.create_task(worker.acquire(free=0, wait=20))
            await held_on(plane, f"worker/{worker.worker_id}")
            await cancel(plane, running.job_id)
            (stop,) = (await asyncio.wait_for(held, 10)).stops
            assert (stop.task_id, stop.reason) == (running.task_id, "cancel")

    run(check())


async def worker_runs(plane, worker, spec=None):
    await submit(plane, spec)
    return await worker.take_and_start()


def test_a_stop_is_repeated_until_the_attempt_has_ended_and_holds_where_it_is_known(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            assignment = await worker_runs(plane, worker)
            stopped = await cancel(plane, assignment.job_id)
            assert stopped.cancel_requested
            assert stopped.state is JobState.RUNNING
            orders = await worker.acquire(wait=20)
            assert [stop.reason for stop in orders.stops] == ["cancel"]
            assert await worker.acquire(wait=20) == orders
            held = asyncio.create_task(worker.acquire(known_orders=orders.stops, wait=20))
            await held_on(plane, f"worker/{worker.worker_id}")
            await cancel(plane, assignment.job_id, force=True)
            assert [stop.reason for stop in (await asyncio.wait_for(held, 10)).stops] == ["kill"]
            await worker.finish(assignment, "cancelled")
            assert (await worker.acquire()).stops == ()
            ended = await status(plane, assignment.job_id)
            assert (ended.state, ended.failure) == (JobState.CANCELLED, None)

    run(check())


def test_a_waiting_job_is_cancelled_at_once_and_cancel_changes_nothing_that_has_ended(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            job = await submit(plane)
            assert (await cancel(plane, job.job_id)).state is JobState.CANCELLED
            worker = await TalkingWorker.join(plane)
            assert (await worker.acquire()).assignments == ()
            done = await worker_runs(plane, worker)
            await worker.finish(done)
            ended = await status(plane, done.job_id)
            assert await cancel(plane, done.job_id, force=True) == ended
            with pytest.raises(UnknownJob):
                await cancel(plane, "j0")

    run(check())


def test_a_job_cancelled_before_its_worker_confirmed_it_ends_at_once_and_the_late_worker_is_told(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            job = await submit(plane)
            (assignment,) = (await worker.acquire()).assignments
            assert (await cancel(plane, job.job_id)).state is JobState.CANCELLED
            orders = await worker.acquire(received=[assignment], wait=20)
            assert [(stop.task_id, stop.reason) for stop in orders.stops] == [(assignment.task_id, "kill")]
            await worker.finish(assignment, "cancelled")

    run(check())


def test_the_first_report_names_the_guilty_rank_and_siblings_stop_as_collateral(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            workers = [await TalkingWorker.join(plane, name) for name in "ab"]
            job = await submit(plane, distributed(nodes=2, devices=2))
            tasks = [await worker.take_and_start() for worker in workers]
            held = asyncio.create_task(workers[0].acquire(wait=20))
            await held_on(plane, f"worker/{workers[0].worker_id}")
            await workers[1].report(tasks[1], "rank 2 raised", rank=2)
            assert [stop.reason for stop in (await asyncio.wait_for(held, 10)).stops] == ["collateral"]
            await workers[0].report(tasks[0], "rank 0 lost its peer", rank=0)
            await workers[0].finish(tasks[0], "cancelled")
            assert (await status(plane, job.job_id)).state is JobState.RUNNING
            await workers[1].finish(tasks[1], "failed", failure=Failure(reason="rank", message="said last"))
            ended = await status(plane, job.job_id)
            assert ended.state is JobState.FAILED
            assert (ended.failure.message, ended.failure.rank) == ("rank 2 raised", 2)
            assert [task.state.value for task in ended.tasks] == ["cancelled", "failed"]

    run(check())


def test_a_failure_before_a_sibling_confirmed_its_share_frees_that_at_once(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            workers = [await TalkingWorker.join(plane, name) for name in "ab"]
            job = await submit(plane, distributed(nodes=2, devices=2))
            task = await workers[0].take()
            await workers[0].finish(task, "failed", failure=Failure(reason="start", message="no such file"))
            ended = await status(plane, job.job_id)
            assert ended.state is JobState.FAILED
            assert ended.failure.reason == "start"
            assert (await workers[1].acquire()).assignments == ()
            assert all(not worker.devices_held for worker in (await plane.list_workers()).workers)

    run(check())


def test_a_failed_job_is_tried_again_as_its_retries_say(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            job = await submit(plane, command(retries=1))
            first = await worker.take_and_start()
            await worker.finish(first, "failed", failure=Failure(reason="rank", message="once"))
            queued = await status(plane, job.job_id)
            assert (queued.state, queued.attempt, queued.failure) == (JobState.QUEUED, 2, None)
            second = await worker.take_and_start()
            assert (second.task_id, second.attempt) == (first.task_id, 2)
            await worker.finish(second, "failed", failure=Failure(reason="rank", message="twice"))
            ended = await status(plane, job.job_id)
            assert (ended.state, ended.attempt, ended.failure.message) == (JobState.FAILED, 2, "twice")

    run(check())


def test_a_failure_that_would_only_be_met_again_is_not_tried_again(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            job = await submit(plane, command(retries=3))
            (first,) = (await worker.acquire()).assignments
            await worker.finish(first, "failed", failure=Failure(reason="start", message="another torch", lasting=True))
            ended = await status(plane, job.job_id)
            assert (ended.state, ended.attempt, ended.failure.message) == (JobState.FAILED, 1, "another torch")

    run(check())


def test_a_finish_may_be_repeated(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            job = await submit(plane, command(retries=3))
            first = await worker.take_and_start()
            failure = Failure(reason="rank", message="once")
            await worker.finish(first, "failed", failure=failure)
            before = await status(plane, job.job_id)
            await worker.finish(first, "failed", failure=failure)
            assert await status(plane, job.job_id) == before

    run(check())


def test_words_that_overtake_the_confirmation_count(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            job = await submit(plane)
            (assignment,) = (await worker.acquire()).assignments
            await worker.finish(assignment)
            ended = await status(plane, job.job_id)
            assert ended.state is JobState.SUCCEEDED
            assert ended.started_at is not None

    run(check())


def test_a_wait_for_a_job_ends_with_it_or_with_a_newer_revision(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            job = await submit(plane)
            newer = asyncio.create_task(status(plane, job.job_id, wait=20, after_revision=job.revision))
            ended = asyncio.create_task(status(plane, job.job_id, wait=20))
            await held_on(plane, f"job/{job.job_id}")
            worker = await TalkingWorker.join(plane)
            assert (await asyncio.wait_for(newer, 10)).revision > job.revision
            await worker.finish(await worker.take_and_start())
            assert (await asyncio.wait_for(ended, 10)).state is JobState.SUCCEEDED
            assert (await status(plane, job.job_id, wait=20)).state is JobState.SUCCEEDED  # at once

    run(check())


def test_jobs_are_listed_newest_first_in_pages(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            made = [(await submit(plane, command(name=f"job-{number}"))).job_id for number in range(5)]
            await cancel(plane, made[0])

            async def page(**fields):
                return await plane.handle(CALLS["list_jobs"], ListJobs(**fields), USER)

            first = await page(limit=2)
            second = await page(limit=2, before=first.next)
            third = await page(limit=2, before=second.next)
            assert [job.job_id for listed in (first, second, third) for job in listed.jobs] == made[::-1]
            assert third.next is None
            assert [job.job_id for job in (await page(state=JobState.CANCELLED)).jobs] == made[:1]

    run(check())


def test_a_job_whose_source_was_not_uploaded_is_refused(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            for fields in ({"source": "0" * 64}, {"inputs": {"data": InputFile(sha256="0" * 64, size_bytes=1)}}):
                with pytest.raises(UnknownArtifact):
                    await plane.handle(CALLS["submit"], SubmitJob(spec=command(), idempotency_key="k", **fields), USER)

    run(check())


def test_events_come_in_order_and_wake(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            held = asyncio.create_task(plane.handle(CALLS["read_events"], ReadEvents(wait=20), USER))
            await held_on(plane, EVERY_TOPIC)
            job = await submit(plane)
            page = await asyncio.wait_for(held, 10)
            assert [item.topic for item in page.events] == [f"job/{job.job_id}"]
            await cancel(plane, job.job_id)
            following = await plane.read_events(after=page.next)
            assert {item.topic for item in following.events} == {f"job/{job.job_id}", f"logs/{job.job_id}"}
            assert all(item.id > page.next for item in following.events)

    run(check())


def test_calls_are_refused_to_the_wrong_role_and_the_wrong_worker(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            other = Caller(role=Role.WORKER, user="ada", worker_id="w0")
            for name, request, caller in [
                ("submit", SubmitJob(spec=command(), idempotency_key="k"), other),
                ("wait_job", GetJob(job_id="j"), Caller(role=Role.JOIN, user="ada")),
                ("acquire_task", AcquireTask(worker_id=worker.worker_id, boot=worker.boot, free=1), USER),
                ("acquire_task", AcquireTask(worker_id=worker.worker_id, boot=worker.boot, free=1), other),
                ("register_worker", registration(worker_id=worker.worker_id), other),
            ]:
                with pytest.raises(NotAuthorized):
                    await plane.handle(CALLS[name], request, caller)

    run(check())


def test_every_call_has_its_method():
    for name in CALLS:
        assert inspect.iscoroutinefunction(getattr(ControlPlane, name)), name


def test_health_counts(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            await TalkingWorker.join(plane)
            await submit(plane)
            health = await plane.handle(CALLS["get_health"], GetHealth(), USER)
            assert (health.protocol, health.workers_alive, health.jobs_unfinished) == (1, 1, 1)
            home_id = health.home_id
            assert len(home_id) == 16
        async with open_control_plane(tmp_path / "home") as plane:
            assert (await plane.get_health()).home_id == home_id

    run(check())


def test_nothing_accepted_is_lost_over_a_restart(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            assignment = await worker_runs(plane, worker)
            await worker.log(assignment, b"before\n")
            waiting = await submit(plane, command(devices=2))
        async with open_control_plane(tmp_path / "home") as plane:
            worker.control_plane = plane
            await worker.log(assignment, b"after\n", offset=7)
            await worker.finish(assignment)
            page = await plane.read_logs(job_id=assignment.job_id)
            assert b"".join(chunk.data for chunk in page.chunks) == b"before\nafter\n"
            assert page.complete
            assert (await worker.take()).job_id == waiting.job_id

    run(check())


def test_closing_ends_held_calls(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane)
            held = asyncio.create_task(worker.acquire(wait=20))
            await held_on(plane, f"worker/{worker.worker_id}")
        with pytest.raises(Interrupted):
            await held

    run(check())


def test_no_call_runs_sql_on_the_loop(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            threads = set()

            def trace(connection):
                connection.driver.set_trace_callback(lambda _: threads.add(threading.get_ident()))

            await plane._database.write(trace)
            await plane._database.read(trace)
            worker = await TalkingWorker.join(plane)
            assignment = await worker_runs(plane, worker)
            await worker.log(assignment, b"x")
            await worker.heartbeat(assignment)
            await worker.finish(assignment)
            await plane.read_logs(job_id=assignment.job_id)
            await plane.list_jobs()
            await plane.list_workers(include_gone=True)
            await plane.read_events()
            await plane.get_health()
            await plane.check_leases()
            await plane.authenticate("gpc_unknown")
            assert threads
            assert threading.get_ident() not in threads

    run(check())


def test_two_control_planes_on_one_home_share_jobs_and_workers(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as one, open_control_plane(tmp_path / "home") as other:
            worker = await TalkingWorker.join(one)
            held = asyncio.create_task(worker.acquire(wait=20))
            await held_on(one, f"worker/{worker.worker_id}")
            job = await submit(other)
            reader = asyncio.create_task(other.read_logs(job_id=job.job_id, wait=20))
            waiter = asyncio.create_task(status(other, job.job_id, wait=20))
            (assignment,) = (await asyncio.wait_for(held, 10)).assignments
            await worker.start(assignment)
            await worker.log(assignment, b"hello\n")
            assert (await asyncio.wait_for(reader, 10)).chunks[0].data == b"hello\n"
            await worker.finish(assignment)
            assert (await asyncio.wait_for(waiter, 10)).state is JobState.SUCCEEDED

    run(check())


def test_two_control_planes_never_give_one_device_twice(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as one, open_control_plane(tmp_path / "home") as other:
            worker = await TalkingWorker.join(one, offers="cpu:4")
            jobs = await asyncio.gather(*(submit(plane) for _ in range(6) for plane in (one, other)))
            assert len({job.job_id for job in jobs}) == 12
            ended = 0
            while ended < 12:
                orders = await worker.acquire(free=8)
                held = [device.id for item in orders.assignments for device in item.devices]
                assert len(held) == len(set(held)) <= 4
                await worker.acquire(free=0, received=orders.assignments)
                for item in orders.assignments:
                    await worker.start(item)
                    await worker.finish(item)
                ended += len(orders.assignments)
            assert await one._database.read(lambda c: c.execute(select(tables.reservations)).all()) == []

    run(check())


def test_clock_of_tests_stamps_the_record(tmp_path):
    async def check():
        clock = FakeClock()
        async with open_control_plane(tmp_path / "home", clock=clock) as plane:
            job = await submit(plane)
            assert job.created_at == clock.now()
            assert isinstance(await plane.drain_worker(worker_id=(await TalkingWorker.join(plane)).worker_id), Done)

    run(check())


def test_another_process_on_the_home_wakes_a_held_worker(tmp_path):
    code = (
        "import asyncio, sys; from pathlib import Path; from support.control import open_control_plane, submit\n"
        "async def main():\n"
        "    async with open_control_plane(Path(sys.argv[1])) as plane:\n"
        "        await asyncio.gather(*(submit(plane, key=f'{sys.argv[2]}-{number}') for number in range(20)))\n"
        "asyncio.run(main())"
    )

    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane, offers="cpu:1")
            processes = [
                await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-W", "error", "-c", code, str(tmp_path / "home"), name),
                    env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
                )
                for name in "ab"
            ]
            for _ in range(40):
                await worker.finish(await worker.take_and_start(wait=20))
            assert [await process.wait() for process in processes] == [0, 0]
            listed = await plane.list_jobs(limit=50)
            assert [job.state for job in listed.jobs] == [JobState.SUCCEEDED] * 40

    run(check())


def test_a_home_is_made_where_there_is_none(tmp_path):
    async def check():
        plane = await ControlPlane.open(tmp_path / "deep" / "home")
        assert (tmp_path / "deep" / "home").stat().st_mode & 0o777 == 0o700
        await submit(plane)
        await plane.close()

    run(check())


def test_the_lease_monitor_goes_on_after_any_fault(tmp_path, monkeypatch, caplog):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            looks = []
            looked = asyncio.Event()

            async def broken():
                looks.append(None)
                looked.set()
                raise ZeroDivisionError("one odd row")

            monkeypatch.setattr(plane, "check_leases", broken)
            for number in (1, 2, 3):
                looked.clear()
                plane.signal("leases")  # instead of the two seconds between looks
                await asyncio.wait_for(looked.wait(), 10)
                assert len(looks) == number
            assert not plane._monitor.done()
        assert "they are checked again" in caplog.text

    run(check())


def test_a_control_plane_whose_database_cannot_be_opened_leaves_no_thread(tmp_path, monkeypatch):
    async def check():
        def broken(_):
            raise OperationalError("SELECT", {}, Exception("disk I/O error"))

        monkeypatch.setattr("gpulayer.control.store.changes.ForeignChanges", broken)
        before = set(threading.enumerate())
        with pytest.raises(OperationalError):
            async with open_control_plane(tmp_path / "home"):
                pass
        assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("gpulayer")]

    run(check())


def test_leftovers_of_uploads_are_removed_at_open(tmp_path):
    async def check():
        clock = FakeClock()
        parts = tmp_path / "home" / "artifacts" / ".parts"
        async with open_control_plane(tmp_path / "home", clock=clock) as plane:
            for digest in ("0" * 64, "1" * 64):
                await plane.put_artifact_part(digest, offset=0, total_bytes=2, data=b"x")
        os.utime(parts / ("0" * 64), (clock.now() - 86401, clock.now() - 86401))
        os.utime(parts / ("1" * 64), (clock.now() - 86399, clock.now() - 86399))
        async with open_control_plane(tmp_path / "home", clock=clock) as plane:
            assert [path.name for path in parts.iterdir()] == ["1" * 64]
            assert not await plane.put_artifact_part("1" * 64, offset=1, total_bytes=3, data=b"y")

    run(check())


def test_a_submit_looks_for_its_artifacts_off_the_loop(tmp_path, monkeypatch):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            threads = []

            def path(_self, _digest):
                threads.append(threading.get_ident())
                return tmp_path

            monkeypatch.setattr(ArtifactFiles, "path", path)
            inputs = {f"in{number}": InputFile(sha256=str(number) * 64, size_bytes=1) for number in range(5)}
            request = SubmitJob(spec=command(), idempotency_key="k", source="a" * 64, inputs=inputs)
            await plane.handle(CALLS["submit"], request, USER)
            assert len(threads) == 6
            assert len(set(threads)) == 1  # one hop for all of them
            assert threading.get_ident() not in threads

    run(check())
