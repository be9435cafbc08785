"""The stream over real sockets: what comes, in which order, how much at once, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import time
from typing import Any

import pytest
from gpulayer_server.handlers.stream import MESSAGE_LIMIT_BYTES, StreamHandler
from gpulayer_server.stream import MOST_REFUSALS, StreamSocket
from support.hosted import NO_TOKEN, Hosted
from support.stream import Printer, open_tab, read_text, stream_request, submit, text_of
from tornado.httpclient import HTTPClientError
from tornado.websocket import websocket_connect

from gpulayer.control.following import ANY_JOB_TOPIC, JobFollower
from gpulayer.control.store import tables
from gpulayer.control.stream_calls import COALESCE_SECONDS
from gpulayer.protocol import MOST_SUBSCRIPTIONS, FollowJobs, HelloFrame, JobsFrame

FRAME_BYTES = 256 * 1024


async def test_a_record_comes_and_then_each_change(hosted: Hosted) -> None:
    job_id = await submit(hosted)
    async with open_tab(hosted) as tab:
        await tab.subscribe(1, "job", job_id=job_id)
        first = await tab.frame()
        assert (first["type"], first["id"], first["status"]["state"]) == ("job", 1, "queued")
        assert first["status"]["waiting"] == {"reason": "no_worker", "local_workers": 1, "cpu_devices": 1}
        printer = await Printer.take(hosted, job_id)
        await printer.finish()
        states = [first["status"]["state"]]
        revisions = [first["status"]["revision"]]
        while states[-1] != "succeeded":
            status = (await tab.frame())["status"]
            states.append(status["state"])
            revisions.append(status["revision"])
        assert revisions == sorted(revisions)
        assert set(states) <= {"queued", "running", "succeeded"}


async def test_output_comes_as_it_is_printed_and_a_cursor_goes_on_where_it_was(hosted: Hosted) -> None:
    job_id = await submit(hosted)
    printer = await Printer.take(hosted, job_id)
    await printer.print("before\n")
    async with open_tab(hosted) as tab:
        await tab.subscribe(7, "logs", job_id=job_id)
        first = await tab.frame()
        assert text_of(first) == "before\n"
        await printer.print("live\n")
        second = await tab.frame()
        assert text_of(second) == "live\n"
        assert second["page"]["next"] > first["page"]["next"]
    await printer.print("while away\n")
    async with open_tab(hosted) as tab:
        await tab.subscribe(1, "logs", job_id=job_id, after=second["page"]["next"])
        await printer.finish()
        assert await read_text(tab, 1) == "while away\n"


async def test_one_rank_and_the_end_of_a_long_log(hosted: Hosted) -> None:
    job_id = await submit(hosted)
    printer = await Printer.take(hosted, job_id)
    for number in range(40):
        await printer.print(f"{number:04}\n" * 200, rank=number % 2)
    await printer.finish()
    async with open_tab(hosted) as tab:
        await tab.subscribe(1, "logs", job_id=job_id, tail_bytes=1500)
        (chunk,) = (page := (await tab.frame())["page"])["chunks"][-2:-1] or page["chunks"][-1:]
        assert page["complete"]
        assert [one["first_line"] for one in page["chunks"]] == [19 * 200, 19 * 200][: len(page["chunks"])]
        await tab.subscribe(2, "logs", job_id=job_id, rank=1, tail_bytes=1)
        assert text_of(await tab.frame_of(2)) == "0039\n" * 200
        await tab.subscribe(3, "logs", job_id=job_id, rank=0)
        assert await read_text(tab, 3) == "".join(f"{number:04}\n" * 200 for number in range(0, 40, 2))
        assert chunk["offset"] == 19 * 1000


async def test_a_frame_is_bounded_and_nothing_is_lost(hosted: Hosted) -> None:
    job_id = await submit(hosted)
    printer = await Printer.take(hosted, job_id)
    large = ["x" * 60_000 + "\n" for _ in range(12)]
    tiny = [f"{number}\n" for number in range(3000)]
    await printer.print(*large)
    for start in range(0, len(tiny), 500):
        await printer.print(*tiny[start : start + 500])
    await printer.finish()
    async with open_tab(hosted) as tab:
        await tab.subscribe(1, "logs", job_id=job_id)
        assert await read_text(tab, 1) == "".join([*large, *tiny])
        assert max(tab.sizes) <= FRAME_BYTES
        assert len(tab.sizes) > 5


async def test_what_comes_close_together_travels_together(hosted: Hosted) -> None:
    job_id = await submit(hosted)
    printer = await Printer.take(hosted, job_id)
    async with open_tab(hosted) as tab:
        await tab.subscribe(1, "logs", job_id=job_id)
        began = time.monotonic()
        reading = asyncio.ensure_future(read_text(tab, 1))
        for number in range(60):
            await printer.print(f"{number}\n")
        await printer.finish()
        assert await reading == "".join(f"{number}\n" for number in range(60))
        assert len(tab.sizes) <= (time.monotonic() - began) / 0.05 + 3


async def test_a_flood_of_output_keeps_no_state_waiting(hosted: Hosted) -> None:
    flooding, other = await submit(hosted), await submit(hosted)
    printer = await Printer.take(hosted, flooding)
    for _ in range(10):
        await printer.print(*["y" * 60_000 + "\n"] * 10)
    async with open_tab(hosted) as tab:
        for number in range(5):
            await tab.subscribe(number, "logs", job_id=flooding)
        await tab.subscribe(9, "job", job_id=other)
        seen = [(await tab.frame())["id"] for _ in range(7)]
        assert 9 in seen
        assert set(range(5)) <= set(seen)  # and none of the floods keeps the others waiting


async def test_metrics_come_by_cursor(hosted: Hosted) -> None:
    job_id = await submit(hosted)
    printer = await Printer.take(hosted, job_id)

    async def log(number: int) -> None:
        await printer.say("metrics", batch={"attempt": 1, "node": 0, "number": number, "points": [[0, number, 0.0, {"loss": 1 / number}]]})

    async with open_tab(hosted) as tab:
        await tab.subscribe(1, "metrics", job_id=job_id)
        await log(1)
        page = (await tab.frame())["page"]
        assert [batch["points"] for batch in page["batches"]] == [[[0, 1, 0.0, {"loss": 1.0}]]]
        await log(2)
        await tab.frame()
        await tab.subscribe(2, "metrics", job_id=job_id, after=page["next"])
        assert [batch["number"] for batch in (await tab.frame_of(2))["page"]["batches"]] == [2]
        await printer.finish()
        assert (await tab.frame())["page"]["complete"]


async def test_the_list_comes_whole_and_then_what_changed(hosted: Hosted) -> None:
    old, new = await submit(hosted), await submit(hosted)
    async with open_tab(hosted) as tab:
        await tab.subscribe(1, "jobs")
        first = await tab.frame()
        assert (first["whole"], [job["job_id"] for job in first["jobs"]]) == (True, [new, old])
        assert first["jobs"][0]["waiting_for"].startswith("no worker yet")
        assert "tasks" not in first["jobs"][0]
        newest = await submit(hosted)
        second = await tab.frame()
        assert (second["whole"], [job["job_id"] for job in second["jobs"]]) == (False, [newest])
        await tab.unsubscribe(1)
        await hosted.call("POST", f"jobs/{old}/cancel", body={})
        await tab.subscribe(2, "jobs", after=second["next"])
        third = await tab.frame()
        assert (third["id"], third["whole"], [(job["job_id"], job["state"]) for job in third["jobs"]]) == (2, False, [(old, "cancelled")])


async def test_a_list_whose_changes_are_not_kept_any_more_comes_whole(hosted: Hosted) -> None:
    job_id = await submit(hosted)
    after = await hosted.last_event() - 1
    await submit(hosted)
    newest = await hosted.last_event()
    await hosted.host.control_plane._database.write(
        lambda c: c.execute(tables.changes.delete().where(tables.changes.c.id < newest)).rowcount
    )
    async with open_tab(hosted) as tab:
        for cursor in (after, newest + 1000):
            await tab.subscribe(cursor, "jobs", after=cursor)
            frame = await tab.frame()
            assert frame["whole"]
            assert job_id in [job["job_id"] for job in frame["jobs"]]


async def test_what_a_job_waits_for_is_told_when_it_changes(hosted: Hosted) -> None:
    job_id = await submit(hosted, devices=2)
    async with open_tab(hosted) as tab:
        await tab.subscribe(1, "job", job_id=job_id)
        await tab.subscribe(2, "jobs")
        frames = [await tab.frame(), await tab.frame()]
        await hosted.worker("small")
        told = {frame["id"]: frame for frame in [await tab.frame(), await tab.frame()]}
        assert told[1]["status"]["waiting"]["reason"] == "too_small"
        assert told[1]["status"]["waiting"]["local_workers"] == 0  # somebody else's worker is alive
        assert told[1]["status"]["revision"] == next(frame for frame in frames if frame["id"] == 1)["status"]["revision"]
        assert "the largest worker has 1 × cpu" in told[2]["jobs"][0]["waiting_for"]


async def test_of_many_that_wait_only_those_in_the_list_are_looked_at_again(hosted: Hosted) -> None:
    follower = hosted.host.control_plane.follow(FollowJobs(limit=2))
    for _ in range(3):
        await submit(hosted)
    frame = await follower.read(1, limit_bytes=FRAME_BYTES)
    assert isinstance(frame, JobsFrame)
    assert len(frame.jobs) == 2
    newest = [await submit(hosted) for _ in range(2)]
    frame = await follower.read(1, limit_bytes=FRAME_BYTES)
    assert isinstance(frame, JobsFrame)
    assert [job.job_id for job in frame.jobs] == newest[::-1]
    assert list(follower._waiting) == newest  # type: ignore[attr-defined]


async def test_what_other_jobs_do_costs_one_that_waits_a_look_now_and_then(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = await submit(hosted)
    reads = []
    read = JobFollower.read

    async def counted(self: JobFollower, number: int, *, limit_bytes: int) -> Any:
        reads.append(number)
        return await read(self, number, limit_bytes=limit_bytes)

    monkeypatch.setattr(JobFollower, "read", counted)
    async with open_tab(hosted) as tab:
        began = time.monotonic()
        await tab.subscribe(1, "job", job_id=job_id)
        await tab.frame()
        for _ in range(100):
            hosted.host.control_plane.waiters.signal(ANY_JOB_TOPIC)
            await asyncio.sleep(0.003)
        assert len(reads) <= (time.monotonic() - began) / COALESCE_SECONDS + 2


async def test_a_subscription_that_is_begun_anew_or_ended_is_silent(hosted: Hosted) -> None:
    one, other = await submit(hosted), await submit(hosted)
    async with open_tab(hosted) as tab:
        await tab.subscribe(1, "job", job_id=one)
        await tab.frame()
        await tab.subscribe(1, "job", job_id=other)
        assert (await tab.frame())["status"]["job_id"] == other
        await hosted.call("POST", f"jobs/{one}/cancel", body={})
        await tab.unsubscribe(1)
        await hosted.call("POST", f"jobs/{other}/cancel", body={})
        await tab.subscribe(2, "job", job_id="none")
        assert (await tab.frame())["id"] == 2


# ---- hostile input


BAD = [
    "no json",
    "[]",
    "{}",
    '{"type":"explode","id":1}',
    '{"type":"subscribe","id":1}',
    '{"type":"subscribe","id":1,"to":{"kind":"everything"}}',
    '{"type":"subscribe","id":1,"to":{"kind":"job"}}',
    '{"type":"subscribe","id":-1,"to":{"kind":"jobs"}}',
    '{"type":"subscribe","id":1e300,"to":{"kind":"jobs"}}',
    '{"type":"subscribe","id":99999999999999999999,"to":{"kind":"jobs"}}',
    '{"type":"subscribe","id":1,"to":{"kind":"logs","job_id":"x","after":-5}}',
    '{"type":"subscribe","id":1,"to":{"kind":"logs","job_id":"x","after":9007199254740993}}',
    '{"type":"subscribe","id":1,"to":{"kind":"job","job_id":"' + "j" * 5000 + '"}}',
    "[" * 20_000,
    b"\xff\xfe\x00",
]


async def test_what_makes_no_sense_is_answered_and_harms_nothing(hosted: Hosted, caplog: Any) -> None:
    job_id = await submit(hosted)
    async with open_tab(hosted) as tab:
        for message in BAD:
            await tab.say(message) if isinstance(message, str) else await tab.socket.write_message(message, binary=True)
            frame = await tab.frame()
            assert (frame["type"], frame["error"]["code"]) == ("failed", "invalid_spec"), message
        await tab.subscribe(5, "job", job_id="../../etc")
        assert (await tab.frame())["error"]["code"] == "unknown_job"
        for kind in ("logs", "metrics"):
            await tab.subscribe(5, kind, job_id="'; DROP TABLE jobs")
            assert (await tab.frame())["error"]["code"] == "unknown_job"
        await tab.subscribe(6, "jobs", limit=-(2**62))
        assert len((await tab.frame())["jobs"]) == 1
        await tab.subscribe(7, "logs", job_id=job_id, rank=2**60, tail_bytes=2**50)
        await tab.subscribe(8, "job", job_id=job_id)
        assert (await tab.frame())["status"]["job_id"] == job_id
    assert "fault" not in caplog.text
    assert "Traceback" not in caplog.text


async def test_who_says_nothing_else_is_closed(hosted: Hosted) -> None:
    async with open_tab(hosted) as tab:
        for _ in range(MOST_REFUSALS + 1):
            await tab.say("?")
        assert await tab.closed() == 1008


async def test_a_message_that_is_too_long_closes(hosted: Hosted) -> None:
    async with open_tab(hosted) as tab:
        await tab.say(" " * (MESSAGE_LIMIT_BYTES + 1))
        assert await tab.closed() == 1009


async def test_subscriptions_are_bounded(hosted: Hosted) -> None:
    job_id = await submit(hosted)
    async with open_tab(hosted) as tab:
        for number in range(MOST_SUBSCRIPTIONS + 1):
            await tab.subscribe(number, "logs", job_id=job_id)
        frame = await tab.frame()
        assert (frame["id"], frame["error"]["code"]) == (MOST_SUBSCRIPTIONS, "too_many_calls")
        await tab.unsubscribe(0)
        await tab.subscribe(MOST_SUBSCRIPTIONS, "job", job_id=job_id)
        assert (await tab.frame())["type"] == "job"


async def test_a_tab_that_takes_nothing_gets_nothing_more(hosted: Hosted) -> None:
    """Whatever it subscribes to meanwhile, one frame is on its way at most."""
    job_id = await submit(hosted)
    printer = await Printer.take(hosted, job_id)
    for _ in range(20):
        await printer.print(*["z" * 60_000 + "\n"] * 10)
    async with open_tab(hosted) as tab:
        (handler,) = _alive(StreamHandler)
        stream = handler.ws_connection.stream
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        tab.socket.protocol.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        # tornado's client reads one message ahead, and no further.
        for _ in range(30):
            await tab.subscribe(1, "logs", job_id=job_id)
            await tab.unsubscribe(1)
        async with asyncio.timeout(10):
            while not stream.writing():
                await tab.subscribe(1, "logs", job_id=job_id)
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)  # time in which more could come
        assert len(stream._write_buffer) <= FRAME_BYTES + 1024


async def test_nothing_overtakes_the_greeting_and_nothing_begins_after_the_end(hosted: Hosted) -> None:
    written: list[str] = []
    taken: list[asyncio.Future[None]] = []

    def send(frame: bytes) -> asyncio.Future[None]:
        written.append(json.loads(frame)["type"])
        taken.append(asyncio.get_running_loop().create_future())
        return taken[-1]

    tab = StreamSocket(hosted.host.control_plane, send, HelloFrame(version="", protocol=1, instance="", time=0.0))
    serving = asyncio.ensure_future(tab.serve())
    subscription = json.dumps({"type": "subscribe", "id": 1, "to": {"kind": "job", "job_id": await submit(hosted)}})
    assert await tab.hear(subscription)
    for _ in range(10):
        await asyncio.sleep(0)
    assert written == ["hello"]
    taken[0].set_result(None)
    async with asyncio.timeout(10):
        while len(written) == 1:
            await asyncio.sleep(0.005)
    assert written == ["hello", "job"]
    taken[1].set_result(None)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert await tab.hear(subscription)
    assert len(tab) == 0


# ---- its end


async def test_a_tab_that_goes_with_a_frame_on_its_way_is_no_fault(hosted: Hosted) -> None:
    faults: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: faults.append(context))
    job_id = await submit(hosted)
    printer = await Printer.take(hosted, job_id)
    for _ in range(20):
        await printer.print(*["z" * 60_000 + "\n"] * 10)
    async with open_tab(hosted) as tab:
        (handler,) = _alive(StreamHandler)
        stream = handler.ws_connection.stream
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        tab.socket.protocol.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        async with asyncio.timeout(10):
            while not stream.writing():
                await tab.subscribe(1, "logs", job_id=job_id)
                await asyncio.sleep(0.01)
        tab.socket.protocol.stream.close()
        del handler, stream
        async with asyncio.timeout(5):
            while len(hosted.host.held_calls) or _alive(StreamHandler):
                gc.collect()
                await asyncio.sleep(0.005)
    assert faults == []


async def test_a_tab_that_goes_away_leaves_nothing(hosted: Hosted) -> None:
    job_id = await submit(hosted)
    plane = hosted.host.control_plane
    before = len(plane.waiters)
    gc.collect()
    gc.disable()
    try:
        async with open_tab(hosted) as tab:
            for number in range(20):
                await tab.subscribe(number, "job", job_id=job_id, shows=True)
                await tab.frame()
            assert plane.views.count(job_id) == 20  # type: ignore[arg-type]
            assert len(hosted.host.held_calls) == 1
        async with asyncio.timeout(5):
            while hosted.host.held_calls._held or len(hosted.host.held_calls) or len(plane.waiters) > before:
                await asyncio.sleep(0.005)
            assert plane.views.count(job_id) == 0  # type: ignore[arg-type]
            del tab
            while _alive(StreamHandler):
                await asyncio.sleep(0.005)
    finally:
        gc.enable()


def _alive(kind: type[Any]) -> list[Any]:
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]


async def test_the_server_stops_with_open_sockets(hosted: Hosted) -> None:
    job_id = await submit(hosted)
    async with open_tab(hosted) as one, open_tab(hosted) as other:
        await one.subscribe(1, "job", job_id=job_id)
        await one.frame()
        began = time.monotonic()
        await hosted.serverapp.extension_manager.stop_all_extensions()
        assert time.monotonic() - began < 5
        assert await one.closed() == await other.closed() == 1001
    with pytest.raises(HTTPClientError, match="503"):
        await websocket_connect(stream_request(hosted, token="any"))


async def test_an_idle_page_is_no_activity(hosted: Hosted) -> None:
    settings = hosted.serverapp.web_app.settings
    settings["last_activity_times"].clear()
    settings["api_last_activity"] = idle = settings["started"]
    async with open_tab(hosted, token=hosted.jupyter_token) as tab:
        await tab.subscribe(1, "jobs")
        await tab.frame()
        await hosted.call("POST", "stream", token=hosted.jupyter_token, body={"subscriptions": {"1": {"kind": "jobs"}}})
        assert not settings["last_activity_times"]
        assert settings["api_last_activity"] == idle


# ---- who may come


async def _cookie(hosted: Hosted) -> str:
    login = await hosted.fetch("GET", "api/status", token=hosted.jupyter_token)
    return next(value.split(";")[0] for value in login.headers.get_list("Set-Cookie") if value.startswith("username-"))


async def test_who_gets_in(hosted: Hosted) -> None:
    cookie = {"Cookie": await _cookie(hosted)}
    here = f"http://127.0.0.1:{hosted.port}"
    for options in ({}, {"token": hosted.jupyter_token}, {"headers": cookie}, {"headers": {**cookie, "Origin": here}}):
        async with open_tab(hosted, **options):
            pass
    worker_token, _ = await hosted.worker()
    evil = {"Origin": "http://evil.example"}
    for options, status in (
        ({"token": NO_TOKEN}, 401),
        ({"token": "gpl_wrong"}, 401),
        ({"token": worker_token}, 403),
        ({"headers": {**cookie, **evil}}, 404),
        ({"headers": evil}, 404),
        ({"headers": {**cookie, "Host": "evil.example"}}, 403),
    ):
        with pytest.raises(HTTPClientError, match=str(status)):
            await websocket_connect(stream_request(hosted, **options))  # type: ignore[arg-type]


async def test_a_token_that_is_revoked_closes_its_socket(hosted: Hosted) -> None:
    token = await hosted.host.control_plane.issue_client_token("ada", valid_seconds=None)
    async with open_tab(hosted, token=token) as tab:
        await hosted.host.control_plane.revoke_token(token)
        assert await tab.closed() == 1008


class TestBound:
    @pytest.fixture
    def extension_config(self) -> dict[str, Any]:
        return {"max_held_calls": 1}

    async def test_a_socket_is_a_held_call(self, hosted: Hosted) -> None:
        async with open_tab(hosted):
            with pytest.raises(HTTPClientError, match="429"):
                await websocket_connect(stream_request(hosted))
        async with asyncio.timeout(5):
            while hosted.host.held_calls._held:
                await asyncio.sleep(0.005)
        async with open_tab(hosted):
            pass


# ---- the poll


async def poll(hosted: Hosted, subscriptions: dict[str, Any], wait: float = 0.0, **options: Any) -> list[dict[str, Any]]:
    answer = await hosted.call("POST", "stream", body={"subscriptions": subscriptions, "wait": wait}, **options)
    frames: list[dict[str, Any]] = answer["frames"]
    return frames


async def test_a_poll_has_the_same_frames_and_is_held(hosted: Hosted) -> None:
    job_id = await submit(hosted)
    follows: dict[str, Any] = {
        "1": {"kind": "job", "job_id": job_id},
        "2": {"kind": "logs", "job_id": job_id},
        "3": {"kind": "jobs"},
        "4": {"kind": "job", "job_id": "none"},
    }
    frames = {frame["id"]: frame for frame in await poll(hosted, follows, wait=20)}
    assert sorted(frames) == [1, 3, 4]
    assert frames[4]["error"]["code"] == "unknown_job"
    follows.pop("4")
    follows["1"]["after_revision"] = frames[1]["status"]["revision"]
    follows["3"]["after"] = frames[3]["next"]
    assert await poll(hosted, follows) == []
    held = asyncio.ensure_future(poll(hosted, follows, wait=20))
    async with asyncio.timeout(5):
        while not len(hosted.host.held_calls):
            await asyncio.sleep(0.005)
    printer = await Printer.take(hosted, job_id)
    assert {frame["type"] for frame in await held} <= {"job", "jobs"}
    await printer.print("hello\n")
    await printer.finish()
    text, complete = "", False
    while not complete:
        for frame in await poll(hosted, {"2": follows["2"]}, wait=20):
            text += text_of(frame)
            follows["2"]["after"], complete = frame["page"]["next"], frame["page"]["complete"]
    assert text == "hello\n"


async def test_a_poll_needs_what_every_post_needs(hosted: Hosted) -> None:
    xsrf = "0123456789abcdef0123456789abcdef"
    cookie = await _cookie(hosted)
    for headers, status in (
        ({"Cookie": cookie}, 403),
        ({"Cookie": f"{cookie}; _xsrf={xsrf}", "X-XSRFToken": xsrf}, 200),
    ):
        answer = await hosted.fetch("POST", "gpulayer/v1/stream", token=NO_TOKEN, headers=headers, body={"subscriptions": {}})
        assert answer.code == status
    too_many = {str(number): {"kind": "jobs"} for number in range(MOST_SUBSCRIPTIONS + 1)}
    for body in ({}, {"subscriptions": {"x": {"kind": "jobs"}}}, {"subscriptions": {"1": {"kind": "all"}}}, {"subscriptions": too_many}):
        answer = await hosted.fetch("POST", "gpulayer/v1/stream", body=body)
        assert (answer.code, json.loads(answer.body)["error"]["code"]) == (400, "invalid_spec")


# ---- who draws what


async def test_views_are_counted_while_they_are_subscribed(hosted: Hosted) -> None:
    job_id = await submit(hosted)

    async def count(wait: float = 0.0) -> int:
        return int((await hosted.call("GET", f"jobs/{job_id}/views?wait={wait}"))["count"])

    assert await count() == 0
    held = asyncio.ensure_future(count(20))
    async with open_tab(hosted) as tab, open_tab(hosted) as other:
        await tab.subscribe(1, "job", job_id=job_id)  # a list that follows it draws nothing
        await tab.frame()
        assert not held.done()
        await tab.subscribe(2, "job", job_id=job_id, shows=True)
        assert await held == 1
        await other.subscribe(1, "job", job_id=job_id, shows=True)
        await other.frame()
        assert await count() == 2
        await tab.unsubscribe(2)
        await tab.subscribe(3, "job", job_id=job_id)
        await tab.frame_of(3)
        assert await count() == 1
    async with asyncio.timeout(5):
        while await count():
            await asyncio.sleep(0.005)
    await poll(hosted, {"1": {"kind": "job", "job_id": job_id, "shows": True}})
    assert await count() == 1  # until its next poll
    assert (await hosted.fetch("GET", "gpulayer/v1/jobs/none/views")).code == 404
