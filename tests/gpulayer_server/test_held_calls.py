"""Held calls end with their client and with the server, and are bounded for each identity."""

import asyncio
import gc
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from gpulayer_server.identity import GPUlayerHandler
from support.hosted import Hosted, leave
from tornado.http1connection import HTTP1Connection

from gpulayer.errors import TooManyCalls, decode_error


async def test_a_call_whose_client_goes_away_ends_at_once(hosted: Hosted) -> None:
    after = await hosted.last_event()
    writer, _, task = await hosted.hold(f"events?after={after}&wait=30")
    left_at = time.monotonic()
    await leave(writer)
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()
    assert time.monotonic() - left_at < 0.5
    assert len(hosted.host.held_calls) == 0
    assert not hosted.host.held_calls._held


@pytest.mark.parametrize("of_jupyter", [False, True], ids=["our token", "Jupyter's token"])
async def test_a_call_whose_client_goes_away_leaves_nothing_in_memory(hosted: Hosted, of_jupyter: bool) -> None:
    """Without waiting for the collector: timers that were cancelled stay with asyncio, and keep the context of the call."""
    after = await hosted.last_event()
    token = hosted.jupyter_token if of_jupyter else None
    gc.collect()
    gc.disable()
    try:
        held = [await hosted.hold(f"events?after={after}&wait=30", token) for _ in range(5)]
        assert len(_alive(GPUlayerHandler)) == 5
        tasks = [task for _, _, task in held]
        while held:
            await leave(held.pop()[0])
        await asyncio.wait(tasks, timeout=5)
        tasks.clear()
        async with asyncio.timeout(5):
            while _alive(GPUlayerHandler) or _alive(HTTP1Connection):
                await asyncio.sleep(0.005)
    finally:
        gc.enable()


def _alive(kind: type[Any]) -> list[Any]:
    # By type(): some modules' objects do things when they are asked for their __class__.
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]


async def test_an_assignment_that_could_not_be_delivered_goes_to_the_next_call(hosted: Hosted) -> None:
    token, worker = await hosted.worker()
    for round_number in range(5):
        body = json.dumps({**worker, "free": 1, "wait": 30, "received": []}).encode()
        _, writer = await asyncio.open_connection("127.0.0.1", hosted.port)
        writer.write(
            f"POST {hosted.base_url}gpulayer/v1/worker/acquire HTTP/1.1\r\nHost: 127.0.0.1:{hosted.port}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        async with asyncio.timeout(5):
            while not len(hosted.host.held_calls):
                await asyncio.sleep(0.005)
        submit = asyncio.ensure_future(
            hosted.call("POST", "jobs", body={"spec": {"kind": "command", "argv": ["true"]}, "idempotency_key": f"key-{round_number}"})
        )
        await leave(writer, abruptly=True)
        job = await submit
        orders = await hosted.call("POST", "worker/acquire", token=token, body={**worker, "free": 1, "wait": 5})
        (assignment,) = orders["assignments"]
        assert assignment["job_id"] == job["job_id"]
        attempt = {"task_id": assignment["task_id"], "attempt": assignment["attempt"], **worker}
        await hosted.call("POST", "worker/acquire", token=token, body={**worker, "free": 0, "received": [attempt]})
        await hosted.call("POST", f"worker/tasks/{attempt['task_id']}/start", token=token, body=attempt)
        await hosted.call("POST", f"worker/tasks/{attempt['task_id']}/finish", token=token, body={**attempt, "state": "succeeded"})


class TestBound:
    @pytest.fixture
    def extension_config(self) -> dict[str, Any]:
        return {"max_held_calls": 3}

    async def test_one_more_is_refused_and_nobody_else(self, hosted: Hosted) -> None:
        after = await hosted.last_event()
        held = [await hosted.hold(f"events?after={after}&wait=30") for _ in range(3)]
        refused = await hosted.fetch("GET", f"gpulayer/v1/events?after={after}&wait=30")
        assert refused.code == 429
        assert int(refused.headers["Retry-After"]) > 0
        assert isinstance(decode_error(json.loads(refused.body)), TooManyCalls)
        # Calls that do not wait, and another identity, are not concerned.
        await hosted.call("GET", "jobs")
        of_another = await hosted.host.control_plane.issue_client_token("another", valid_seconds=None)
        writer, _, task = await hosted.hold(f"events?after={after}&wait=30", token=of_another)
        for one in [*held, (writer, None, task)]:
            await leave(one[0])
        await asyncio.wait([one[2] for one in [*held, (writer, None, task)]], timeout=5)
        again = await hosted.hold(f"events?after={after}&wait=30")
        await leave(again[0])
        await asyncio.wait([again[2]], timeout=5)


class TestBoundOfWorkers:
    @pytest.fixture
    def extension_config(self) -> dict[str, Any]:
        return {"max_held_calls_of_a_worker": 1}

    async def test_the_option_that_is_named_is_the_one_that_helps(self, hosted: Hosted) -> None:
        token, worker = await hosted.worker()
        body = {**worker, "free": 1, "wait": 30}
        held = asyncio.ensure_future(hosted.fetch("POST", "gpulayer/v1/worker/acquire", token=token, body=body))
        async with asyncio.timeout(5):
            while not len(hosted.host.held_calls):
                await asyncio.sleep(0.005)
        refused = await hosted.fetch("POST", "gpulayer/v1/worker/acquire", token=token, body=body)
        assert refused.code == 429
        assert "GPUlayerExtension.max_held_calls_of_a_worker" in str(decode_error(json.loads(refused.body)))
        await hosted.call("POST", "worker/leave", token=token, body=worker)
        assert (await held).code == 200


async def test_starting_local_workers_is_a_held_call(hosted: Hosted, tmp_path: Path) -> None:
    mute = tmp_path / "python"
    mute.write_text("#!/bin/sh\nexec sleep 600\n")
    mute.chmod(0o700)
    body = json.dumps({"count": 1, "python": str(mute)}).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", hosted.port)
    writer.write(
        f"POST {hosted.base_url}gpulayer/v1/workers/local HTTP/1.1\r\nHost: 127.0.0.1:{hosted.port}\r\n"
        f"Authorization: Bearer {hosted.client_token}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    local_workers = hosted.host.local_workers
    assert local_workers is not None
    try:
        async with asyncio.timeout(5):
            while not local_workers.pids or not hosted.host.control_plane.waiters.is_watched("workers"):
                await asyncio.sleep(0.005)
        (task,) = hosted.host.held_calls._tasks
        assert sum(hosted.host.held_calls._held.values()) == 1
        await leave(writer, abruptly=True)
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()
        async with asyncio.timeout(5):
            while hosted.host.control_plane.waiters.is_watched("workers"):
                await asyncio.sleep(0)
        assert not hosted.host.held_calls._held
    finally:
        for pid in local_workers.pids:
            os.kill(pid, signal.SIGKILL)


async def test_the_server_stops_with_held_calls(hosted: Hosted) -> None:
    after = await hosted.last_event()
    held = [await hosted.hold(f"events?after={after}&wait=30") for _ in range(10)]
    began = time.monotonic()
    await hosted.serverapp.extension_manager.stop_all_extensions()
    assert time.monotonic() - began < 5
    for writer, reader, _ in held:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert head.startswith(b"HTTP/1.1 503")
        assert b"Retry-After" in head
        await leave(writer)
    assert (await hosted.fetch("GET", "gpulayer/v1/jobs", token="any")).code == 503
