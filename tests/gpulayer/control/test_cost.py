"""What a job costs the control plane, in transactions, statements and wake-ups: counted, not timed."""

from __future__ import annotations

import asyncio
import random
import tracemalloc

import msgspec
import pytest
from support.control import AGENT, TalkingWorker, command, devices, held_on, open_control_plane, run, status, submit

from gpulayer.calls import CALLS
from gpulayer.control.store import attempts, workers
from gpulayer.control.store.memory import Memory
from gpulayer.control.waiters import Watch
from gpulayer.errors import AttemptLost
from gpulayer.protocol import AcquireNext, AttemptRef, Done, FinishTask, LogChunk, TaskFinished, WorkerOrders


class Counted:
    """The statements that the writer runs, from now on."""

    @classmethod
    async def of(cls, plane):
        counted = cls()
        plane._monitor.cancel()  # a look at the leases is a transaction too
        await plane._database.write(lambda c: c.driver.set_trace_callback(counted.note))
        counted.clear()
        return counted

    def __init__(self):
        self.statements = []

    def note(self, statement):
        # Between two writes the writer asks whether others have committed; each transaction asks as well.
        if not statement.startswith("PRAGMA data_version"):
            self.statements.append(statement)

    def clear(self):
        self.statements.clear()

    def take(self):
        """Transactions and statements since the last call, those that begin and end a transaction among them."""
        begun = sum(statement.startswith("BEGIN") for statement in self.statements)
        assert begun == sum(statement.startswith("COMMIT") for statement in self.statements)
        taken = (begun, len(self.statements))
        self.clear()
        return taken


async def all_have_looked(plane):
    """Every call that was made before this has had its first look at the store, and sleeps or is answered."""
    await plane._database.write(lambda _: None)
    await asyncio.gather(*(plane._database.read(lambda _: None) for _ in range(10)))
    for _ in range(20):
        await asyncio.sleep(0)


def about(worker, assignment):
    return {"task_id": assignment.task_id, "attempt": assignment.attempt, "worker_id": worker.worker_id, "boot": worker.boot}


def refs(*assignments):
    return tuple(AttemptRef(task_id=item.task_id, attempt=item.attempt) for item in assignments)


async def finish(plane, worker, assignment, **fields):
    request = FinishTask(**about(worker, assignment), state="succeeded", **fields)
    return await plane.handle(CALLS["finish_task"], request, AGENT)


def test_every_step_is_one_transaction_of_few_statements(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane, offers="cpu:1")
            await worker.finish(await worker.take_and_start()) if (await submit(plane)) else None  # the memory is read once
            counted = await Counted.of(plane)
            await submit(plane)
            # begin, the key, job, attempt, reservation, changes, commit
            assert counted.take() == (1, 7)
            (task,) = (await worker.acquire()).assignments
            assert counted.take() == (1, 5)  # begin, renewal, attempts, job, commit
            await worker.acquire(received=[task])
            assert counted.take() == (1, 8)  # the attempt, its move, the job's revision, changes instead of the job
            await worker.start(task)
            assert counted.take() == (1, 6)
            await worker.log(task, b"x\n")
            assert counted.take() == (1, 7)
            await worker.finish(task)
            assert counted.take() == (1, 8)
            await worker.heartbeat()
            assert counted.take() == (1, 4)

    run(check())


def test_an_end_and_what_it_makes_room_for_are_one_transaction_and_answer_the_held_acquire(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane, offers="cpu:1")
            jobs = [await submit(plane) for _ in range(3)]
            task = await worker.take_and_start()
            held = asyncio.create_task(worker.acquire(wait=20))
            await held_on(plane, attempts.worker_topic(worker.worker_id))
            await all_have_looked(plane)
            counted = await Counted.of(plane)
            reads = []
            plane._database.read = lambda question: reads.append(question)
            await worker.finish(task)
            (following,) = (await held).assignments
            assert following.job_id == jobs[1].job_id
            # as above, and: attempt, reservation, job; worker's attempts, job for the one who waits
            assert counted.take() == (1, 13)
            assert reads == []
            del plane._database.read

    run(check())


def test_one_commit_of_a_group_hops_to_the_loop_once(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            await TalkingWorker.join(plane, offers="cpu:1")
            await submit(plane)
            counted = await Counted.of(plane)
            hops = []
            loop = asyncio.get_running_loop()
            hop = loop.call_soon_threadsafe
            loop.call_soon_threadsafe = lambda *arguments: (hops.append(arguments), hop(*arguments))[1]
            await asyncio.gather(*(submit(plane) for _ in range(100)))
            del loop.call_soon_threadsafe
            transactions, _ = counted.take()
            assert len(hops) == transactions < 50

    run(check())


@pytest.fixture
def fired(monkeypatch):
    """The watches that are woken."""
    woken = []
    fire = Watch.fire

    def noting(self, *arguments, **options):
        woken.append(self)
        fire(self, *arguments, **options)

    monkeypatch.setattr(Watch, "fire", noting)
    return woken


async def join_many(plane, count):
    """As many workers with one device each, in one transaction."""
    fields = {"owner": "ada", "host": "h", "boot_id": "h", "address": "127.0.0.1", "python": "p", "version": "0", "protocol": 1}
    blobs = {"devices": msgspec.json.encode(devices("cpu:1")), "frameworks": b"{}"}

    def change(connection):
        for number in range(count):
            workers.put_worker(
                connection,
                f"w{number}",
                boot="boot-1",
                name=f"name-{number:04}",
                local=0,
                state="alive",
                registered_at=1.0,
                last_seen_at=plane._clock.now(),
                **fields,
                **blobs,
            )

    await plane._database.write(change)
    return [TalkingWorker(plane, f"name-{number:04}", f"w{number}", "boot-1") for number in range(count)]


def test_of_a_thousand_waiting_workers_and_jobs_those_concerned_are_woken_and_nobody_else(tmp_path, fired):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            many = await join_many(plane, 1000)
            acquires = [asyncio.create_task(worker.acquire(wait=30)) for worker in many]
            needs = [await submit(plane, command(devices=2)) for _ in range(10)]  # none of them has two
            waits = [asyncio.create_task(status(plane, job.job_id, wait=30)) for job in needs for _ in range(100)]
            while len(plane.waiters) < 2001:
                await asyncio.sleep(0)
            await all_have_looked(plane)
            fired.clear()
            job = await submit(plane)
            await asyncio.wait(acquires, return_when=asyncio.FIRST_COMPLETED)
            (woken,) = (task for task in acquires if task.done())
            assert len(fired) == 1
            worker = many[acquires.index(woken)]
            (task,) = woken.result().assignments
            assert task.job_id == job.job_id
            waiter = asyncio.create_task(status(plane, job.job_id, wait=30))
            await held_on(plane, f"job/{job.job_id}")
            await all_have_looked(plane)
            await worker.acquire(received=[task])
            await worker.start(task)
            await worker.log(task, b"nobody reads\n")
            assert len(fired) == 1
            fired.clear()
            await worker.finish(task)
            assert (await waiter).ended_at is not None
            assert len(fired) == 1
            for held in (*acquires, *waits):
                held.cancel()
            await asyncio.gather(*acquires, *waits, return_exceptions=True)

    run(check())


def test_a_waiting_acquire_is_small(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            many = await join_many(plane, 1000)
            warm = [asyncio.create_task(worker.acquire(wait=30)) for worker in many[:10]]
            await all_have_looked(plane)
            tracemalloc.start()
            before, _ = tracemalloc.get_traced_memory()
            held = [asyncio.create_task(worker.acquire(wait=30)) for worker in many[10:]]
            while len(plane.waiters) < 1001:
                await asyncio.sleep(0)
            await all_have_looked(plane)
            after, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert (after - before) / 990 < 15_000
            for task in (*warm, *held):
                task.cancel()
            await asyncio.gather(*warm, *held, return_exceptions=True)

    run(check())


def test_an_end_that_asks_for_more_is_answered_with_it_until_that_is_received(tmp_path, fired):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane, offers="cpu:1")
            jobs = [await submit(plane) for _ in range(3)]
            first = await worker.take_and_start()
            held = asyncio.create_task(worker.acquire(wait=20))
            await held_on(plane, attempts.worker_topic(worker.worker_id))
            await all_have_looked(plane)
            counted = await Counted.of(plane)
            fired.clear()
            answer = await finish(plane, worker, first, acquire=AcquireNext(free=1))
            assert counted.take()[0] == 1
            (second,) = answer.orders.assignments
            assert second.job_id == jobs[1].job_id
            await all_have_looked(plane)
            assert fired == []
            assert not held.done()  # its worker knows from the answer
            assert await finish(plane, worker, first, acquire=AcquireNext(free=1)) == answer  # that answer was cut
            assert (await worker.acquire()).assignments == (second,)
            answer = await finish(plane, worker, second, acquire=AcquireNext(free=1, received=refs(second)))
            assert [stop.reason for stop in answer.orders.stops] == ["kill"]  # received too late to count
            (third,) = answer.orders.assignments
            assert third.job_id == jobs[2].job_id
            chunk = LogChunk(attempt=1, node=0, rank=0, stream="stdout", offset=0, first_line=0, time=0.0, data=b"all\n")
            answer = await finish(plane, worker, third, chunks=(chunk,), since_start_seconds=0.1, acquire=AcquireNext(free=1))
            assert answer.orders == WorkerOrders()
            held.cancel()
            assert [job.state.value for job in (await plane.list_jobs()).jobs] == ["succeeded"] * 3

    run(check())


def test_an_end_that_is_refused_gives_nothing(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane, offers="cpu:1")
            await submit(plane)
            task = await worker.take_and_start()
            await worker.finish(task, "failed")
            await submit(plane)
            with pytest.raises(AttemptLost):
                await finish(plane, worker, task, acquire=AcquireNext(free=1))
            assert (await finish(plane, worker, await worker.take_and_start())).orders is None

    run(check())


def test_the_answers_of_an_end_with_and_without_orders_decode_as_each_other():
    assert msgspec.json.decode(msgspec.json.encode(Done()), type=TaskFinished).orders is None
    assert msgspec.json.decode(msgspec.json.encode(TaskFinished(orders=WorkerOrders())), type=Done) == Done()


def remembered(memory):
    return (
        memory.workers,
        {worker_id: held for worker_id, held in memory.held.items() if held},
        {demand: list(queue.values()) for demand, queue in memory.waiting.items()},
    )


@pytest.mark.parametrize("seed", range(8))
def test_what_the_writer_remembers_is_what_is_stored(tmp_path, seed):
    def compare(connection):
        fresh = Memory()
        fresh.load(connection)
        if connection.memory.is_loaded:
            assert remembered(connection.memory) == remembered(fresh)
        return connection.memory.is_loaded

    async def check():
        draw = random.Random(seed)
        async with open_control_plane(tmp_path / "home") as plane:
            present = [await TalkingWorker.join(plane, name, offers="cpu:2", boot=name) for name in "ab"]
            tasks = []
            compared = 0

            async def end():
                worker, task = tasks.pop(draw.randrange(len(tasks)))
                await worker.finish(task, draw.choice(["succeeded", "failed", "cancelled"]))

            async def take():
                worker = draw.choice(present)
                tasks.extend((worker, item) for item in (await worker.acquire()).assignments)

            for number in range(60):
                act = draw.choice(["submit", "submit", "take", "end", "cancel", "rejoin", "drain", "refused"])
                try:
                    if act == "submit":
                        await submit(plane, command(devices=draw.choice([1, 2]), retries=draw.choice([0, 1])))
                    elif act == "take":
                        await take()
                    elif act == "end" and tasks:
                        await end()
                    elif act == "cancel":
                        listed = (await plane.list_jobs()).jobs
                        if listed:
                            await plane.cancel(job_id=draw.choice(listed).job_id)
                    elif act == "rejoin" and number % 3 == 0:
                        index = draw.randrange(2)
                        known = present[index]
                        present[index] = await TalkingWorker.join(
                            plane, known.name, offers="cpu:2", boot=f"boot-{number}", worker_id=known.worker_id
                        )
                    elif act == "drain" and number > 50:
                        await plane.drain_worker(worker_id=present[0].worker_id)
                    elif act == "refused":
                        await plane.start_task(task_id="j0.0", attempt=1, worker_id=present[0].worker_id, boot=present[0].boot)
                except AttemptLost:
                    pass
                compared += await plane._database.write(compare)
            assert compared > 20

    run(check())


def test_a_call_that_is_refused_before_it_changed_anything_costs_no_look_at_the_fleet(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane, offers="cpu:1")
            await submit(plane)
            task = await worker.take_and_start()
            await worker.finish(task)
            for refused in (worker.start(task), asyncio.gather(*(worker.start(task) for _ in range(5)))):
                with pytest.raises(AttemptLost):
                    await refused
                assert await plane._database.write(lambda c: c.memory.is_loaded)

    run(check())


def test_a_write_that_is_undone_is_forgotten(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            worker = await TalkingWorker.join(plane, offers="cpu:1")
            await submit(plane, command(devices=1))

            def fails(connection):
                (row,) = attempts.live_attempts_of_worker(connection, worker.worker_id)
                assert connection.memory.held[worker.worker_id]
                attempts.move_attempt(connection, row, attempts.AttemptState.LOST)
                assert not connection.memory.held[worker.worker_id]
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await plane._database.write(fails)
            held = await plane._database.write(lambda c: dict(attempts.held_devices(c)))
            assert list(held[worker.worker_id]) == ["cpu:0"]

    run(check())
