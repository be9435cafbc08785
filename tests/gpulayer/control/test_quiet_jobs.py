from __future__ import annotations

import asyncio

import pytest
from support.control import USER, TalkingWorker, held_on, open_control_plane, run, status, submit

from gpulayer.control import quiet_jobs
from gpulayer.control.quiet_jobs import QuietJobs
from gpulayer.control.store.jobs import job_topic
from gpulayer.control.store.logs import logs_topic
from gpulayer.protocol import JobId


def test_a_job_is_quiet_until_its_output_or_end_is_told():
    jobs = QuietJobs()
    jobs.add(JobId("a"))
    jobs.add(JobId("b"))
    jobs.hear([job_topic(JobId("a")), "workers"])
    assert "a" in jobs
    jobs.hear([logs_topic(JobId("a"))])
    assert "a" not in jobs
    assert "b" in jobs


def test_the_oldest_are_forgotten(monkeypatch):
    monkeypatch.setattr(quiet_jobs, "KEPT_JOBS", 2)
    jobs = QuietJobs()
    for name in "abc":
        jobs.add(JobId(name))
    assert [name for name in "abc" if name in jobs] == ["b", "c"]


def test_who_waits_for_a_quiet_job_is_answered_without_a_read(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane, offers="cpu:1")
            job = await submit(plane)
            reads = []
            plane._database.read = lambda question: reads.append(question)
            waiting = asyncio.create_task(status(plane, job.job_id, wait=20))
            reading = asyncio.create_task(plane.read_logs(job_id=job.job_id, wait=20))
            await held_on(plane, job_topic(job.job_id))
            await held_on(plane, logs_topic(job.job_id))
            task = await worker.take_and_start()
            await worker.log(task, b"x\n")
            assert [chunk.data for chunk in (await reading).chunks] == [b"x\n"]
            await worker.finish(task)
            assert (await waiting).state == "succeeded"
            assert reads == []

    run(check())


def test_a_job_is_quiet_before_anybody_can_hear_of_its_end(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            write, found = plane._database.write, []

            def looked_at(change):
                def changed(connection):
                    status = change(connection)
                    found.append(status.job_id in plane._quiet_jobs)
                    return status

                return write(changed)

            plane._database.write = looked_at
            await submit(plane)
            plane._database.write = write
            assert found == [True]

    run(check())


def test_a_request_that_is_repeated_makes_no_job_quiet(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane, offers="cpu:1")
            job = await submit(plane, key="once")
            await worker.finish(await worker.take_and_start())
            assert (await submit(plane, key="once", caller=USER)).job_id == job.job_id
            assert job.job_id not in plane._quiet_jobs
            assert (await status(plane, job.job_id, wait=20)).state == "succeeded"
            assert (await plane.read_logs(job_id=job.job_id, wait=20)).complete

    run(check())


@pytest.mark.parametrize("ends", [True, False])
def test_what_another_process_does_to_a_quiet_job_is_heard(tmp_path, ends):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane, open_control_plane(tmp_path / "home") as other:
            job = await submit(plane)
            assert job.job_id in plane._quiet_jobs
            held = asyncio.create_task(status(plane, job.job_id, wait=20))
            await held_on(plane, job_topic(job.job_id))
            if ends:
                await other.cancel(job_id=job.job_id)
            else:
                worker = await TalkingWorker.join(other, offers="cpu:1")
                await worker.finish(await worker.take_and_start())
            assert (await held).state == ("cancelled" if ends else "succeeded")
            assert job.job_id not in plane._quiet_jobs

    run(check())
