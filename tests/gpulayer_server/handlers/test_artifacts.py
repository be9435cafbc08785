"""Artifacts through the HTTP interface: parts, resuming, refusals, streaming."""

import asyncio
import hashlib
import json
import os
import threading
from pathlib import Path

import psutil
import pytest
from gpulayer_server.handlers.artifacts import PART_LIMIT_BYTES, PIECE_BYTES, ArtifactHandler
from support.hosted import NO_TOKEN, Hosted, leave

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


async def test_a_connection_reads_as_before_once_a_part_has_come(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(1000)
    read_bytes = []
    finish = ArtifactHandler.on_finish

    def on_finish(self: ArtifactHandler) -> None:
        stream = self.request.connection.stream  # type: ignore[union-attr]
        read_bytes.append(stream.read_chunk_size)
        finish(self)
        read_bytes.append(stream.read_chunk_size)

    monkeypatch.setattr(ArtifactHandler, "on_finish", on_finish)
    assert (await put(hosted, data, 0, data)).code == 200
    assert (await put(hosted, data, 0, b"", token=NO_TOKEN)).code == 401
    usual = 64 * 1024
    assert read_bytes == [PIECE_BYTES, usual, usual, usual]


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
