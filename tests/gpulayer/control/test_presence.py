"""Who is there, followed change by change, against a presence that is made anew and a look at every stored worker."""

from __future__ import annotations

import random

import pytest
from support.control import FakeClock, TalkingWorker, command, open_control_plane, run, submit

from gpulayer.control.presence import Presence, presence_of
from gpulayer.control.store import workers
from gpulayer.control.store.memory import Memory
from gpulayer.errors import AttemptLost
from gpulayer.settings import IDLE_LEASE_SECONDS


def counted(connection, now):
    """Kind and size → how many workers are there with at least so many, by a look at every worker."""
    there = [workers.devices_of(row) for row in workers.all_workers(connection) if not workers.is_silent(row, now)]
    sizes = [
        ((kind, simulated), sum((device.accelerator, device.simulated) == (kind, simulated) for device in offered))
        for offered in there
        for kind, simulated in {(device.accelerator, device.simulated) for device in offered}
    ]
    return {(*kind, size): sum(other == kind and has >= size for other, has in sizes) for kind, size in sizes}


@pytest.mark.parametrize("seed", range(6))
def test_it_follows_what_happens_as_if_it_were_made_anew(tmp_path, seed):
    draw = random.Random(seed)
    clock = FakeClock()
    largest = {}

    def compare(connection):
        now = clock.now()
        fresh_memory = Memory()
        fresh_memory.load(connection)
        fresh = Presence(fresh_memory)
        fresh.follow(now)
        kept = presence_of(connection, now)
        by_id = [{worker.id: worker for worker in presence.fleet.workers} for presence in (kept, fresh)]
        assert by_id[0] == by_id[1]
        assert len(by_id[0]) == sum(not workers.is_silent(row, now) for row in workers.all_workers(connection))
        stored = {(group.accelerator, group.simulated, group.devices): group.workers for group in workers.read_largest_groups(connection)}
        assert stored == largest
        return connection.memory.of_host == fresh_memory.of_host

    async def join(plane, number, **options):
        offers = draw.choice(["cpu:1", "cpu:2", "cuda:2", "cpu:3,cuda:1"])
        host = draw.choice(["h1", "h2"])
        made = await TalkingWorker.join(plane, f"w{number}", offers=offers, boot=f"b{number}", boot_id=host, **options)
        alive = await plane._database.write(lambda c: counted(c, clock.now()))
        largest.update({key: max(count, largest.get(key, 0)) for key, count in alive.items()})
        return made

    async def check():
        async with open_control_plane(tmp_path / "home", clock=clock) as plane, open_control_plane(tmp_path / "home", clock=clock) as other:
            joined = [await join(plane, 0)]
            for number in range(1, 80):
                plane_now = draw.choice([plane, plane, plane, other])
                one = draw.choice(joined)
                one.control_plane = plane_now
                act = draw.choice(["join", "again", "hear", "hear", "leave", "drain", "submit", "take", "wait", "wait", "back", "refused"])
                try:
                    if act == "join" and len(joined) < 8:
                        joined.append(await join(plane_now, number))
                    elif act == "again":
                        joined[joined.index(one)] = await join(plane_now, number, worker_id=one.worker_id)
                    elif act == "hear":
                        await one.heartbeat()
                    elif act == "leave":
                        await one.leave()
                    elif act == "drain":
                        await plane_now.drain_worker(worker_id=one.worker_id)
                    elif act == "submit":
                        await submit(plane_now, command(accelerator="cpu"))
                    elif act == "take":
                        await one.finish(await one.take())
                    elif act == "wait":
                        clock.advance(IDLE_LEASE_SECONDS / 3)
                    elif act == "back":
                        clock.wall -= 2 * IDLE_LEASE_SECONDS
                    elif act == "refused":
                        await one.start(await one.take())
                except (AttemptLost, ValueError):
                    pass  # it has left, or there is nothing to take
                assert await plane._database.write(compare)

    run(check())


def test_a_registration_runs_as_many_statements_whoever_else_is_there(tmp_path):
    async def check():
        clock = FakeClock()
        async with open_control_plane(tmp_path / "home", clock=clock) as plane:
            statements = []
            await plane._database.write(lambda c: c.driver.set_trace_callback(statements.append))
            counts = []
            for number in range(60):
                statements.clear()
                await TalkingWorker.join(plane, f"w{number}", offers="cuda:1", boot=f"b{number}", boot_id=f"h{number}")
                counts.append(sum(not statement.startswith("PRAGMA data_version") for statement in statements))
            assert set(counts[5:]) == {counts[5]}
            assert counts[5] < 12
            assert not any("FROM workers" in statement and "WHERE workers.id" not in statement for statement in statements)

    run(check())
