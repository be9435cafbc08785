"""Artifacts through the HTTP interface: parts, resuming, refusals, streaming."""

import asyncio
import contextlib
import hashlib
import json
import os
import threading
from pathlib import Path

import psutil
import pytest
from gpulayer_server.handlers.artifacts import PART_LIMIT_BYTES, PIECE_BYTES, READ_HERE_BYTES
from support.hosted import Hosted, leave

from gpulayer.errors import Conflict, InvalidSpec, TooLarge, UnknownArtifact, decode_error
from gpulayer.protocol import Digest

PART = 3 * 1024 * 1024 + 17


def where(data: bytes) -> str:
    return f"gpulayer/v1/artifacts/{hashlib.sha256(data).hexdigest()}"


async def put(hosted: Hosted, data: bytes, offset: int, part: bytes, **options):
    return await hosted.fetch("PUT", f"{where(data)}?offset={offset}&total={len(data)}", body=part, **options)


async def test_there_and_back_in_parts(hosted: Hosted) -> None:
    data = os.urandom(2 * PART + 5)
    assert (await hosted.fetch("HEAD", where(data))).code == 404
    for offset in range(0, len(data), PART):
        answer = await put(hosted, data, offset, data[offset : offset + PART])
        assert answer.code == 200, answer.body
        stored = json.loads(answer.body)
        assert stored["complete"] == (stored["offset"] == len(data))
    head = await hosted.fetch("HEAD", where(data))
    assert (head.code, int(head.headers["Content-Length"])) == (200, len(data))
    got = await hosted.fetch("GET", where(data))
    assert got.headers["Content-Type"] == "application/octet-stream"
    assert got.body == data


async def test_an_empty_one(hosted: Hosted) -> None:
    assert (await put(hosted, b"", 0, b"")).code == 200
    got = await hosted.fetch("GET", where(b""))
    assert (got.code, got.body) == (200, b"")


async def test_refusals(hosted: Hosted) -> None:
    data = os.urandom(1000)
    for answer, kind in (
        (await hosted.fetch("GET", where(data)), UnknownArtifact),
        (await hosted.fetch("PUT", where(data), body=data), InvalidSpec),
        (await hosted.fetch("PUT", f"{where(data)}?offset=-1&total=5", body=data), InvalidSpec),
        (await hosted.fetch("GET", "gpulayer/v1/artifacts/..%2F..%2Fmetadata.db"), InvalidSpec),
        (await put(hosted, data, 500, data[500:]), Conflict),
        (await put(hosted, data, 0, bytes(PART_LIMIT_BYTES + 1)), TooLarge),
    ):
        error = decode_error(json.loads(answer.body))
        assert isinstance(error, kind), answer.body
        assert answer.code == error.http_status


async def test_other_bytes_than_the_digest_says(hosted: Hosted) -> None:
    data = os.urandom(2000)
    answer = await put(hosted, data, 0, bytes(2000))
    assert 400 <= answer.code < 500
    assert (await hosted.fetch("HEAD", where(data))).code == 404
    assert (await put(hosted, data, 0, data)).code == 200


async def test_a_part_that_was_cut_is_resumed(hosted: Hosted) -> None:
    data = os.urandom(5 * 1024 * 1024)
    _, writer = await asyncio.open_connection("127.0.0.1", hosted.port)
    writer.write(
        f"PUT {hosted.base_url}{where(data)}?offset=0&total={len(data)} HTTP/1.1\r\nHost: 127.0.0.1:{hosted.port}\r\n"
        f"Authorization: Bearer {hosted.client_token}\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        + data[: 3 * 1024 * 1024]
    )
    await writer.drain()
    await leave(writer)
    offset = 0
    async with asyncio.timeout(10):
        while True:
            answer = await put(hosted, data, offset, data[offset:])
            if answer.code == 200:
                break
            error = decode_error(json.loads(answer.body))
            assert isinstance(error, Conflict), answer.body
            offset = error.details["offset"]
    assert (await hosted.fetch("GET", where(data))).body == data


async def test_a_reader_that_leaves_keeps_nothing_open(hosted: Hosted) -> None:
    data = os.urandom(20 * 1024 * 1024)
    assert (await put(hosted, data, 0, data)).code == 200
    reader, writer = await asyncio.open_connection("127.0.0.1", hosted.port)
    request = f"GET {hosted.base_url}{where(data)} HTTP/1.1\r\nHost: 127.0.0.1:{hosted.port}\r\n"
    writer.write(f"{request}Authorization: Bearer {hosted.client_token}\r\n\r\n".encode())
    await reader.readexactly(100_000)
    await leave(writer, abruptly=True)
    path = hosted.host.control_plane.artifact_path(where(data)[-64:])
    async with asyncio.timeout(5):
        while str(path) in [file.path for file in psutil.Process().open_files()]:
            await asyncio.sleep(0.01)


async def test_a_part_is_stored_in_large_pieces_one_after_the_other(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(8 * PIECE_BYTES + 5)
    control_plane, offsets, at_once = hosted.host.control_plane, [], []
    store, running = control_plane.put_artifact_part, set()

    async def put_artifact_part(sha256: Digest, *, offset: int, total_bytes: int, data: bytes) -> bool:
        offsets.append(offset)
        running.add(offset)
        at_once.append(len(running))
        try:
            return await store(sha256, offset=offset, total_bytes=total_bytes, data=data)
        finally:
            running.discard(offset)

    monkeypatch.setattr(control_plane, "put_artifact_part", put_artifact_part)
    assert json.loads((await put(hosted, data, 0, data)).body) == {"complete": True, "offset": len(data)}
    assert offsets == sorted(offsets)
    assert len(offsets) <= 9
    assert set(at_once) == {1}


def put_head(hosted: Hosted, data: bytes, *further: str, offset: int = 0, token: str | None = None) -> bytes:
    lines = [
        f"PUT {hosted.base_url}{where(data)}?offset={offset}&total={len(data)} HTTP/1.1",
        f"Host: 127.0.0.1:{hosted.port}",
        f"Authorization: Bearer {token or hosted.client_token}",
        *further,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


async def answer_to(reader: asyncio.StreamReader) -> tuple[int, dict]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split()[1]), json.loads(await reader.readexactly(length))


async def test_a_refused_part_leaves_the_connection_in_step(hosted: Hosted) -> None:
    data = os.urandom(3 * PIECE_BYTES + 5)
    reader, writer = await asyncio.open_connection("127.0.0.1", hosted.port)
    async with asyncio.timeout(10):
        writer.write(put_head(hosted, data, f"Content-Length: {len(data) - 5}", offset=5) + data[5:])  # a gap, found with the first piece
        assert (await answer_to(reader))[0] == Conflict.http_status
        writer.write(put_head(hosted, data, f"Content-Length: {len(data)}") + data)
        assert await answer_to(reader) == (200, {"complete": True, "offset": len(data)})
    await leave(writer)


async def test_a_part_that_the_disk_refuses_is_answered(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(3 * PIECE_BYTES + 5)

    async def is_full(sha256: Digest, *, offset: int, total_bytes: int, data: bytes) -> bool:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(hosted.host.control_plane, "put_artifact_part", is_full)
        reader, writer = await asyncio.open_connection("127.0.0.1", hosted.port)
        async with asyncio.timeout(10):
            writer.write(put_head(hosted, data, f"Content-Length: {len(data)}") + data)
            assert (await answer_to(reader))[0] == 500
            with contextlib.suppress(ConnectionResetError):  # nobody takes what is left of the body for a request
                assert await reader.read() == b""
        await leave(writer)
    assert (await put(hosted, data, 0, data)).code == 200


async def test_bodies_of_every_shape(hosted: Hosted) -> None:
    async with asyncio.timeout(10):
        for size in (READ_HERE_BYTES, READ_HERE_BYTES + 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES):
            data = os.urandom(size)
            whole = (200, {"complete": True, "offset": size})
            reader, writer = await asyncio.open_connection("127.0.0.1", hosted.port)
            writer.write(put_head(hosted, data, f"Content-Length: {size}", "Expect: 100-continue"))
            assert await reader.readline() == b"HTTP/1.1 100 (Continue)\r\n"
            await reader.readline()
            writer.write(data)
            assert await answer_to(reader) == whole
            other = data[::-1]
            writer.write(put_head(hosted, other, "Transfer-Encoding: chunked") + b"%x\r\n%b\r\n0\r\n\r\n" % (size, other))
            assert await answer_to(reader) == whole
            third = data[1:] + data[:1]
            writer.write(put_head(hosted, third, f"Content-Length: {size}") + third)
            assert await answer_to(reader) == whole
            await leave(writer)
            for one in (data, other, third):
                assert (await hosted.fetch("GET", where(one))).body == one


async def test_what_came_before_a_cut_is_kept(hosted: Hosted) -> None:
    data = os.urandom(3 * PIECE_BYTES)
    sent = PIECE_BYTES + 1000
    _, writer = await asyncio.open_connection("127.0.0.1", hosted.port)
    writer.write(put_head(hosted, data, f"Content-Length: {len(data)}") + data[:sent])
    await writer.drain()
    await leave(writer)
    stored = 0
    async with asyncio.timeout(10):
        while stored < sent:
            answer = await put(hosted, data, len(data), b"")
            stored = decode_error(json.loads(answer.body)).details["offset"]
    assert stored == sent


async def test_the_disk_is_asked_off_the_loop(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(1000)
    assert (await put(hosted, data, 0, data)).code == 200
    control_plane, threads = hosted.host.control_plane, set()
    path_of = control_plane.artifact_path

    def artifact_path(sha256: Digest) -> Path | None:
        threads.add(threading.get_ident())
        return path_of(sha256)

    monkeypatch.setattr(control_plane, "artifact_path", artifact_path)
    for method in ("HEAD", "GET"):
        assert (await hosted.fetch(method, where(data))).code == 200
    assert threads
    assert threading.get_ident() not in threads
