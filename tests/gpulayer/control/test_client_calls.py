"""Starting workers on the control plane's own machine."""

from __future__ import annotations

import asyncio

import pytest
from support.control import USER, TalkingWorker, held_on, open_control_plane, registration, run

from gpulayer.calls import CALLS
from gpulayer.errors import Unsupported
from gpulayer.protocol import StartLocalWorkers


class StartsTalkers:
    """A host whose workers register in their own time."""

    def __init__(self):
        self.plane = None
        self.tasks = []

    def interpreters(self, home):
        return []

    async def start(self, request, *, home, join_tokens):
        assert home == self.plane.home
        assert len(join_tokens) == request.count
        self.tasks += [asyncio.create_task(self.register(token)) for token in join_tokens]

    async def register(self, token):
        caller = await self.plane.authenticate(token)
        await self.plane.handle(CALLS["register_worker"], registration(token[-6:], boot=token, local=True), caller)


def start(plane, count):
    return plane.handle(CALLS["start_local_workers"], StartLocalWorkers(count=count, python="python"), USER)


def test_started_workers_are_answered_once_they_have_registered(tmp_path):
    async def check():
        host = StartsTalkers()
        async with open_control_plane(tmp_path / "home", local_workers=host) as plane:
            host.plane = plane
            await TalkingWorker.join(plane)
            first, second = await asyncio.gather(start(plane, 2), start(plane, 1))
            assert (len(first.workers), len(second.workers)) == (2, 1)
            assert all(worker.local for worker in first.workers + second.workers)
            assert len((await plane.list_workers()).workers) == 4
            await asyncio.gather(*host.tasks)

    run(check())


def test_a_host_that_starts_none_says_so(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            with pytest.raises(Unsupported, match="gpulayer worker start"):
                await start(plane, 1)

    run(check())


def test_a_start_that_waits_for_its_workers_holds_up_no_other(tmp_path):
    async def check():
        class Mute(StartsTalkers):
            async def start(self, request, *, home, join_tokens):
                if request.count == 1:
                    await super().start(request, home=home, join_tokens=join_tokens)

        host = Mute()
        async with open_control_plane(tmp_path / "home", local_workers=host) as plane:
            host.plane = plane
            waiting = asyncio.create_task(start(plane, 2))
            await held_on(plane, "workers")
            assert len((await asyncio.wait_for(start(plane, 1), 10)).workers) == 1
            assert not waiting.done()
            waiting.cancel()
            await asyncio.gather(waiting, *host.tasks, return_exceptions=True)

    run(check())
