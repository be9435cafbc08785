"""Who draws which job."""

from __future__ import annotations

import asyncio

from support.control import open_control_plane, run, submit

from gpulayer.control.views import Views, views_topic
from gpulayer.protocol import FollowJob, JobId

JOB = JobId("j")


def test_a_control_plane_without_browsers_says_so_at_once(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            job = await submit(plane)
            assert (await asyncio.wait_for(plane.read_views(job_id=job.job_id, wait=30), 10)).count == 0

    run(check())


def test_a_wait_ends_with_the_first_view(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home", serves_browsers=True) as plane:
            job = await submit(plane)
            held = asyncio.create_task(plane.read_views(job_id=job.job_id, wait=30))
            await plane.read_stream(subscriptions={1: FollowJob(job_id=job.job_id, shows=True)})
            assert (await asyncio.wait_for(held, 10)).count == 1

    run(check())


def test_a_poll_counts_once_until_the_next_one():
    async def check():
        signalled = []
        views = Views(signalled.append)
        with views.draw([JOB], lingers=True):
            assert views.count(JOB) == 1
        assert views.count(JOB) == 1
        with views.draw([JOB], lingers=True):  # the same tab again: not two
            assert views.count(JOB) == 1
        with views.draw([JOB]), views.draw([JOB]):
            assert views.count(JOB) == 2
        assert views.count(JOB) == 1
        assert set(signalled) == {views_topic(JOB)}
        assert len(signalled) == 3  # only where the number changed

    run(check())
