"""Metrics of jobs, through the calls that write and read them."""

from __future__ import annotations

import asyncio

import pytest
from support.control import TalkingWorker, distributed, held_on, open_control_plane, run, submit

from gpulayer.control.store import metrics
from gpulayer.errors import AttemptLost, InvalidSpec, TooLarge, UnknownJob
from gpulayer.protocol import MOST_POINTS_OF_A_BATCH, MOST_VALUES_OF_A_BATCH, MetricBatch, MetricPoint


async def started(plane):
    worker = await TalkingWorker.join(plane)
    await submit(plane)
    return worker, await worker.take_and_start()


def point(step, rank=0, **values):
    return MetricPoint(rank=rank, step=step, time=1.0, values=values or {"loss": 0.5})


def steps_of(page):
    return [one.step for batch in page.batches for one in batch.points]


def test_what_is_sent_again_is_stored_once(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            for _ in range(2):
                await worker.log_metrics(task, point(1), point(2), number=1, lost=3)
                await worker.log_metrics(task, point(3), number=2)
            page = await plane.read_metrics(job_id=task.job_id)
            assert steps_of(page) == [1, 2, 3]
            assert [batch.sequence for batch in page.batches] == [1, 2]
            assert (page.next, page.complete) == (2, False)
            assert (page.received, page.kept, page.lost) == (3, 3, 3)

    run(check())


def test_a_reader_is_woken_by_metrics_and_told_when_all_is_read(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            topic = metrics.metrics_topic(task.job_id)
            held = asyncio.create_task(plane.read_metrics(job_id=task.job_id, wait=20))
            await held_on(plane, topic)
            await worker.log_metrics(task, point(1))
            page = await asyncio.wait_for(held, 10)
            assert steps_of(page) == [1]
            held = asyncio.create_task(plane.read_metrics(job_id=task.job_id, after=page.next, wait=20))
            await held_on(plane, topic)
            await worker.finish(task)
            last = await asyncio.wait_for(held, 10)
            assert (last.batches, last.complete, last.next) == ((), True, page.next)

    run(check())


def test_pages_are_bounded_and_join_without_a_gap_whatever_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "PAGE_BYTES", 100)

    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            for number in range(1, 11):
                await worker.log_metrics(task, point(number, rank=number % 2, **{"odd" if number % 2 else "even": 1.0}), number=number)
            await worker.finish(task)
            asked = [({}, list(range(1, 11))), ({"rank": 1}, [1, 3, 5, 7, 9]), ({"name": "even"}, [2, 4, 6, 8, 10]), ({"rank": 7}, [])]
            for filters, expected in asked:
                after, steps, complete, pages = 0, [], False, 0
                while not complete:
                    page = await plane.read_metrics(job_id=task.job_id, after=after, wait=20, **filters)
                    assert page.next > after or page.complete
                    steps += steps_of(page)
                    after, complete = page.next, page.complete
                    pages += 1
                assert steps == expected
                assert (after, pages > 1) == (10, True)

    run(check())


def test_of_one_name_only_its_values_are_read(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            await worker.log_metrics(task, point(1, loss=0.5, lr=0.1), point(2, lr=0.2))
            page = await plane.read_metrics(job_id=task.job_id, name="loss")
            assert [one.values for batch in page.batches for one in batch.points] == [{"loss": 0.5}]

    run(check())


def test_metrics_of_an_attempt_that_is_over_are_refused(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            await worker.finish(task)
            with pytest.raises(AttemptLost):
                await worker.log_metrics(task, point(1))
            assert steps_of(await plane.read_metrics(job_id=task.job_id)) == []

    run(check())


def test_nodes_count_their_batches_apart_and_attempts_follow_each_other(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            workers = [await TalkingWorker.join(plane, name) for name in "ab"]
            job = await submit(plane, distributed(nodes=2, devices=2, retries=1))
            for attempt in (1, 2):
                tasks = [await worker.take_and_start() for worker in workers]
                for worker, task in zip(workers, tasks, strict=True):
                    await worker.log_metrics(task, point(10 * attempt + task.node, rank=2 * task.node))
                await workers[0].finish(tasks[0], "failed")
                await workers[1].finish(tasks[1], "cancelled")
            page = await plane.read_metrics(job_id=job.job_id)
            assert sorted(steps_of(page)) == [10, 11, 20, 21]
            assert [batch.attempt for batch in page.batches] == [1, 1, 2, 2]
            assert page.complete

    run(check())


def test_batches_over_the_limit_or_of_another_node_are_refused(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            await worker.log_metrics(task, *[point(step) for step in range(MOST_POINTS_OF_A_BATCH)])
            with pytest.raises(TooLarge):
                await worker.log_metrics(task, *[point(step) for step in range(MOST_POINTS_OF_A_BATCH + 1)], number=2)
            values = {str(number): 1.0 for number in range(MOST_VALUES_OF_A_BATCH + 1)}
            with pytest.raises(TooLarge):
                await worker.log_metrics(task, point(1, **values), number=2)
            about = {"task_id": task.task_id, "attempt": 1, "worker_id": worker.worker_id, "boot": worker.boot}
            of_another = MetricBatch(attempt=1, node=1, number=2, points=())
            with pytest.raises(InvalidSpec):
                await plane.append_metrics(**about, batch=of_another)
            with pytest.raises(UnknownJob):
                await plane.read_metrics(job_id="j0", wait=20)

    run(check())


@pytest.mark.parametrize("stride", [1, 100, 128])
def test_past_what_is_kept_in_full_a_job_is_thinned_out_the_same_on_all_ranks(tmp_path, monkeypatch, stride):
    monkeypatch.setattr(metrics, "KEPT_IN_FULL", 1000)

    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            for number in range(1, 41):
                steps = range((number - 1) * 100, number * 100)
                await worker.log_metrics(task, *[point(step * stride, rank) for step in steps for rank in (0, 1)], number=number)
            found: dict[int, list[int]] = {0: [], 1: []}
            after, complete = 0, False
            await worker.finish(task)
            while not complete:
                page = await plane.read_metrics(job_id=task.job_id, after=after)
                for batch in page.batches:
                    for one in batch.points:
                        found[one.rank].append(one.step // stride)
                after, complete = page.next, page.complete
            assert found[0] == found[1]
            assert found[0][:500] == list(range(500))
            # 1000 × (1 + ln 8) of 8000, and about evenly: no gap of a whole tenth of the way.
            assert page.received == 8000
            assert 2500 < page.kept == 2 * len(found[0]) < 3500
            assert max(later - earlier for earlier, later in zip(found[0], found[0][1:], strict=False)) < 40
            assert found[0][-1] > 3950

    run(check())


def test_points_without_a_step_are_thinned_out_by_their_number(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "KEPT_IN_FULL", 100)

    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            for number in range(1, 11):
                await worker.log_metrics(task, *[point(None)] * 100, number=number)
            page = await plane.read_metrics(job_id=task.job_id)
            assert page.received == 1000
            assert 250 < page.kept == len(steps_of(page)) < 350

    run(check())
