"""What of a job's times its record has."""

from __future__ import annotations

from support.control import FakeClock, TalkingWorker, command, distributed, open_control_plane, run, status, submit

from gpulayer.client.waterfall import waterfall_of
from gpulayer.protocol import MARKS, RankOutcome


def test_a_record_says_when_each_task_was_placed_and_keeps_the_marks_of_its_ranks(tmp_path):
    async def check():
        clock = FakeClock()
        async with open_control_plane(tmp_path / "home", clock=clock) as plane:
            job = await submit(plane, distributed(nodes=2))
            clock.advance(2)
            workers = [await TalkingWorker.join(plane, name, offers="cpu:1") for name in "ab"]
            tasks = [await worker.take() for worker in workers]
            placed = await status(plane, job.job_id)
            assert [task.placed_at for task in placed.tasks] == [job.created_at + 2] * 2
            clock.advance(1)
            marks = {name: float(at) for at, name in enumerate(MARKS)}
            for worker, task in zip(workers, tasks, strict=True):
                await worker.start(task)
            clock.advance(len(MARKS))
            for worker, task in zip(workers, tasks, strict=True):
                await worker.finish(task, ranks=(RankOutcome(rank=task.node, local_rank=0, exit_code=0, marks=marks),))
            ended = await status(plane, job.job_id)
            assert [rank.marks for task in ended.tasks for rank in task.ranks] == [marks] * 2
            own = [(span.step, span.start, span.end) for span in waterfall_of(ended) if span.rank is None]
            last = 1 + len(MARKS)  # each a second after the one before, from the placement on
            assert own == [("queued", 0, 2), ("assigned", 2, 3), ("running", 3, last), ("finish", last, last + 2)]

    run(check())


def test_a_try_is_placed_at_its_own_time(tmp_path):
    async def check():
        clock = FakeClock()
        async with open_control_plane(tmp_path / "home", clock=clock) as plane:
            worker = await TalkingWorker.join(plane)
            job = await submit(plane, command(retries=1))
            first = await worker.take_and_start()
            clock.advance(5)
            await worker.finish(first, "failed")
            again = await status(plane, job.job_id)
            assert [(task.attempt, task.placed_at) for task in again.tasks] == [(2, job.created_at + 5)]
            assert [span.step for span in waterfall_of(again, clock.now())] == ["earlier attempts, queued", "assigned"]

    run(check())
