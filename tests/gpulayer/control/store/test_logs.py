"""Output of jobs, through the calls that write and read it."""

from __future__ import annotations

import asyncio

import pytest
from support.control import TalkingWorker, distributed, held_on, open_control_plane, run, submit

from gpulayer.control.client_calls import LOG_PAGE_LIMIT_BYTES
from gpulayer.control.store import logs as store_logs
from gpulayer.errors import AttemptLost, InvalidSpec, TooLarge, UnknownJob
from gpulayer.protocol import AppendLogs, LogChunk
from gpulayer.settings import LOG_CHUNK_BYTES


async def started(plane):
    worker = await TalkingWorker.join(plane)
    await submit(plane)
    return worker, await worker.take_and_start()


def data_of(page):
    return [chunk.data for chunk in page.chunks]


def test_what_is_sent_again_is_stored_once(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            for _ in range(2):
                await worker.log(task, b"one\n")
                await worker.log(task, b"two\n", offset=4)
                await worker.log(task, b"err\n", stream="stderr")
                await worker.log(task, b"launcher\n", rank=None)
            page = await plane.read_logs(job_id=task.job_id)
            assert data_of(page) == [b"one\n", b"two\n", b"err\n", b"launcher\n"]
            assert [chunk.sequence for chunk in page.chunks] == [1, 2, 3, 4]
            assert page.chunks[3].rank is None
            assert (page.next, page.complete) == (4, False)

    run(check())


def test_a_reader_is_woken_by_output_and_told_when_all_is_read(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            held = asyncio.create_task(plane.read_logs(job_id=task.job_id, wait=20))
            await held_on(plane, f"logs/{task.job_id}")
            await worker.log(task, b"one\n")
            page = await asyncio.wait_for(held, 10)
            assert data_of(page) == [b"one\n"]
            held = asyncio.create_task(plane.read_logs(job_id=task.job_id, after=page.next, wait=20))
            await held_on(plane, f"logs/{task.job_id}")
            await worker.finish(task)
            last = await asyncio.wait_for(held, 10)
            assert (data_of(last), last.complete, last.next) == ([], True, page.next)

    run(check())


def test_pages_are_bounded_and_join_without_a_gap(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            for number in range(10):
                await worker.log(task, b"x" * 100, offset=100 * number, rank=number % 2)
            await worker.finish(task)
            for rank, expected in ((None, list(range(10))), (1, [1, 3, 5, 7, 9])):
                after, offsets, complete = 0, [], False
                while not complete:
                    page = await plane.read_logs(job_id=task.job_id, rank=rank, after=after, limit_bytes=250)
                    assert 0 < len(page.chunks) <= 2
                    offsets += [chunk.offset // 100 for chunk in page.chunks]
                    after, complete = page.next, page.complete
                assert offsets == expected
                assert after == 10
            assert len((await plane.read_logs(job_id=task.job_id, limit_bytes=1)).chunks) == 1

    run(check())


def test_output_after_the_end_is_refused(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            await worker.finish(task)
            with pytest.raises(AttemptLost):
                await worker.log(task, b"late")
            assert data_of(await plane.read_logs(job_id=task.job_id)) == []

    run(check())


def test_a_cursor_from_beyond_stays_where_it_is(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            await worker.log(task, b"x")
            assert (await plane.read_logs(job_id=task.job_id, after=7)).next == 7
            with pytest.raises(UnknownJob):
                await plane.read_logs(job_id="j0", wait=20)

    run(check())


def test_chunks_over_the_limit_or_of_another_node_are_refused(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            await worker.log(task, b"x" * LOG_CHUNK_BYTES)
            with pytest.raises(TooLarge):
                await worker.log(task, b"x" * (LOG_CHUNK_BYTES + 1), offset=LOG_CHUNK_BYTES)
            chunk = LogChunk(attempt=1, node=1, rank=0, stream="stdout", offset=0, first_line=0, time=0.0, data=b"")
            request = AppendLogs(task_id=task.task_id, attempt=1, worker_id=worker.worker_id, boot=worker.boot, chunks=(chunk,))
            with pytest.raises(InvalidSpec):
                await plane.append_logs(**{name: getattr(request, name) for name in request.__struct_fields__})

    run(check())


def test_nodes_have_streams_of_their_own_and_attempts_follow_each_other(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            workers = [await TalkingWorker.join(plane, name) for name in "ab"]
            job = await submit(plane, distributed(nodes=2, devices=2, retries=1))
            for attempt in (1, 2):
                tasks = [await worker.take_and_start() for worker in workers]
                for worker, task in zip(workers, tasks, strict=True):
                    await worker.log(task, f"attempt {attempt} node {task.node}".encode(), rank=None)
                await workers[0].finish(tasks[0], "failed")
                await workers[1].finish(tasks[1], "cancelled")
            page = await plane.read_logs(job_id=job.job_id)
            assert sorted(data_of(page)) == [f"attempt {attempt} node {node}".encode() for attempt in (1, 2) for node in (0, 1)]
            assert [chunk.attempt for chunk in page.chunks] == [1, 1, 2, 2]
            assert page.complete

    run(check())


def test_no_page_is_larger_than_the_limit_whatever_its_reader_asks_for(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            for number in range(20):
                await worker.log(task, b"x" * LOG_CHUNK_BYTES, offset=number * LOG_CHUNK_BYTES)
            page = await plane.read_logs(job_id=task.job_id, limit_bytes=1 << 40)
            assert sum(len(data) for data in data_of(page)) == LOG_PAGE_LIMIT_BYTES
            rest = await plane.read_logs(job_id=task.job_id, after=page.next, limit_bytes=1 << 40)
            assert len(page.chunks) + len(rest.chunks) == 20

    run(check())


async def of_two_ranks(plane, count=30):
    """A job whose two ranks printed chunks of 10 bytes in turn."""
    worker, task = await started(plane)
    for number in range(count):
        await worker.log(task, b"%09d\n" % number, rank=number % 2, offset=10 * (number // 2))
    return task.job_id


@pytest.mark.parametrize(("rank", "tail_bytes", "first"), [(None, 25, 27), (None, 30, 27), (None, 10**6, 0), (0, 25, 24), (1, 1, 29)])
def test_a_reader_may_begin_near_the_end(tmp_path, rank, tail_bytes, first):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            job_id = await of_two_ranks(plane)
            page = await plane.read_logs(job_id=job_id, rank=rank, tail_bytes=tail_bytes)
            step = 1 if rank is None else 2
            assert data_of(page) == [b"%09d\n" % number for number in range(first, 30, step)]
            assert page.next == 30
            assert data_of(await plane.read_logs(job_id=job_id, rank=rank, after=28, tail_bytes=10**6)) == [
                b"%09d\n" % number for number in (28, 29) if rank is None or number % 2 == rank
            ]

    run(check())


@pytest.mark.parametrize("rank", [None, 0, 1, 7])
def test_pages_that_end_before_one_another_join_up_to_the_beginning(tmp_path, rank):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            job_id = await of_two_ranks(plane)
            found, before = [], 2**70
            while (page := await plane.read_logs(job_id=job_id, rank=rank, before=before, limit_bytes=70, wait=20)).chunks:
                found = data_of(page) + found
                before = page.chunks[0].sequence
            assert found == [b"%09d\n" % number for number in range(30) if rank is None or number % 2 == rank]
            with pytest.raises(UnknownJob):
                await plane.read_logs(job_id="none", before=5)

    run(check())


@pytest.mark.parametrize("query", ["_PAGE_OF_RANK", "_EARLIER_OF_RANK", "_SIZES_OF_RANK_FROM_END"])
def test_one_ranks_output_is_found_by_its_index(tmp_path, query):
    """Of a job of many ranks, the rows of the others are not passed over one by one."""

    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            sql, constants = getattr(store_logs, query)._compile()
            values = {"job_id": "x", "after": 0, "before": 9, "of_rank": 1, **constants}
            plan = await plane._database.read(lambda c: [row[3] for row in c.driver.execute(f"EXPLAIN QUERY PLAN {sql}", values)])
            assert all("USING INDEX ix_logs_rank (job_id=? AND rank=?" in step for step in plan), plan

    run(check())
