"""Rich output and progress of jobs, through the calls that write and read them."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from support.control import FakeClock, TalkingWorker, command, held_on, open_control_plane, run, status, submit

from gpulayer.control.store import displays as store
from gpulayer.errors import AttemptLost, InvalidSpec, TooLarge, UnknownArtifact, UnknownJob
from gpulayer.protocol import MOST_DISPLAYS, MOST_INLINE_BYTES, Display, DisplayPayload
from gpulayer.states import JobState


async def started(plane, spec=None):
    worker = await TalkingWorker.join(plane)
    await submit(plane, spec)
    return worker, await worker.take_and_start()


def display(number, text=None, **fields):
    fields = {"attempt": 1, "rank": 0, "time": 1.0, **fields}
    return Display(number=number, data={"text/plain": DisplayPayload(text=text if text is not None else str(number))}, **fields)


def texts_of(page):
    return [one.data["text/plain"].text if one.data else None for one in page.displays]


def test_what_is_sent_again_is_stored_once(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            for _ in range(2):
                await worker.show(task, display(1), display(2))
                await worker.show(task, display(3))
            page = await plane.read_displays(job_id=task.job_id)
            assert texts_of(page) == ["1", "2", "3"]
            assert [one.sequence for one in page.displays] == [1, 2, 3]
            assert (page.next, page.complete) == (3, False)
            assert (await plane.read_displays(job_id=task.job_id, after=2)).displays == page.displays[2:]

    run(check())


def test_an_update_takes_the_place_of_the_one_before_and_a_clear_that_of_all(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            await worker.show(task, display(1, "first", display_id="a"), display(2, "other"))
            for number in range(3, 9):
                await worker.show(task, display(number, display_id="a", update=True))
                await worker.show(task, display(number, display_id="a", update=True))
            page = await plane.read_displays(job_id=task.job_id)
            assert texts_of(page) == ["first", "other", "8"]
            assert [one.update for one in page.displays] == [False, False, True]
            assert page.next == 8
            await worker.show(task, display(9, clear=True))
            page = await plane.read_displays(job_id=task.job_id, after=page.next)
            assert texts_of(page) == ["9"]
            assert page.displays[0].clear
            await worker.show(task, Display(attempt=1, number=10, rank=0, time=1.0, clear=True))
            assert texts_of(await plane.read_displays(job_id=task.job_id)) == [None]

    run(check())


def test_a_reader_is_woken_by_displays_and_told_when_all_is_read(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            topic = store.displays_topic(task.job_id)
            held = asyncio.create_task(plane.read_displays(job_id=task.job_id, wait=20))
            await held_on(plane, topic)
            await worker.show(task, display(1))
            page = await asyncio.wait_for(held, 10)
            assert texts_of(page) == ["1"]
            held = asyncio.create_task(plane.read_displays(job_id=task.job_id, after=page.next, wait=20))
            await held_on(plane, topic)
            await worker.finish(task)
            last = await asyncio.wait_for(held, 10)
            assert (last.displays, last.complete, last.next) == ((), True, 1)

    run(check())


def test_pages_go_on_where_the_last_ended(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            for start in range(1, 151, 10):
                await worker.show(task, *(display(number) for number in range(start, start + 10)))
            await worker.finish(task)
            first = await plane.read_displays(job_id=task.job_id)
            assert (len(first.displays), first.complete) == (store.PAGE_ROWS, False)
            second = await plane.read_displays(job_id=task.job_id, after=first.next)
            assert texts_of(first) + texts_of(second) == [str(number) for number in range(1, 151)]
            assert second.complete
            with pytest.raises(UnknownJob):
                await plane.read_displays(job_id="j0")

    run(check())


def test_what_refers_to_an_artifact_that_is_not_here_is_refused(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            sha256 = hashlib.sha256(b"png").hexdigest()
            shown = Display(attempt=1, number=1, rank=0, time=1.0, data={"image/png": DisplayPayload(artifact=sha256, size_bytes=3)})
            with pytest.raises(UnknownArtifact):
                await worker.show(task, shown)
            await plane.put_artifact_part(sha256, offset=0, total_bytes=3, data=b"png")
            await worker.show(task, shown)
            assert (await plane.read_displays(job_id=task.job_id)).displays[0].data == shown.data

    run(check())


def test_an_artifact_that_no_notebook_could_take_in_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("gpulayer.control.worker_calls.LARGEST_DISPLAY_BYTES", 2)

    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            sha256 = hashlib.sha256(b"png").hexdigest()
            await plane.put_artifact_part(sha256, offset=0, total_bytes=3, data=b"png")
            shown = Display(attempt=1, number=1, rank=0, time=1.0, data={"image/png": DisplayPayload(artifact=sha256, size_bytes=1)})
            with pytest.raises(TooLarge):
                await worker.show(task, shown)

    run(check())


@pytest.mark.parametrize(
    ("shown", "error"),
    [
        (display(1, attempt=2), InvalidSpec),
        (display(1, "x" * (MOST_INLINE_BYTES + 1)), TooLarge),
        (display(1, metadata={"a": "x" * 20_000}), TooLarge),
        (Display(attempt=1, number=1, rank=0, time=1.0, data={"text/plain": DisplayPayload()}), InvalidSpec),
    ],
)
def test_what_no_worker_sends_is_refused(tmp_path, shown, error):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            with pytest.raises(error):
                await worker.show(task, shown)
            assert texts_of(await plane.read_displays(job_id=task.job_id)) == []

    run(check())


def test_a_job_has_so_many_and_no_more(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            for start in range(1, 2 * MOST_DISPLAYS + 1, 20):
                await worker.show(task, *(display(number) for number in range(start, start + 20)))
            with pytest.raises(TooLarge):
                await worker.show(task, display(2 * MOST_DISPLAYS + 1))

    run(check())


def test_an_attempt_that_is_over_shows_and_reports_nothing_and_the_next_begins_anew(tmp_path):
    async def check():
        clock = FakeClock()
        async with open_control_plane(tmp_path / "home", clock=clock) as plane:
            worker, task = await started(plane, command(retries=1))
            await worker.show(task, display(1, display_id="a"))
            await worker.say_progress(task, 3, total=4, text="nearly")
            assert (await status(plane, task.job_id)).progress.done == 3
            await worker.leave()
            with pytest.raises(AttemptLost):
                await worker.show(task, display(2))
            with pytest.raises(AttemptLost):
                await worker.say_progress(task, 4)
            found = await status(plane, task.job_id)
            assert (found.state, found.attempt, found.progress) == (JobState.QUEUED, 2, None)
            again = await TalkingWorker.join(plane, "b", boot="boot-2")
            second = await again.take_and_start()
            await again.show(second, display(1, "again", attempt=2, clear=True))
            assert texts_of(await plane.read_displays(job_id=task.job_id)) == ["1", "again"]

    run(check())


def test_progress_is_a_change_of_the_record(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker, task = await started(plane)
            before = await status(plane, task.job_id)
            held = asyncio.create_task(status(plane, task.job_id, wait=20, after_revision=before.revision))
            await worker.say_progress(task, 1, total=2)
            after = await asyncio.wait_for(held, 10)
            assert after.revision == before.revision + 1
            assert (after.progress.done, after.progress.total, after.progress.text) == (1.0, 2.0, None)
            await worker.finish(task)
            assert (await status(plane, task.job_id)).progress == after.progress

    run(check())
