"""Artifacts: content-addressed bytes, streamed both ways in pieces.

Files are read off the loop; what is received goes to the control plane piece by piece, so that no part is ever held whole.
While one piece is on its way to or from the disk, the next one is on the wire.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import BinaryIO

from tornado.http1connection import HTTP1Connection
from tornado.iostream import StreamClosedError
from tornado.web import stream_request_body

from gpulayer.calls import Action, Role
from gpulayer.errors import GPUlayerError, InvalidSpec, TooLarge, UnknownArtifact
from gpulayer.protocol import Digest
from gpulayer.settings import ARTIFACT_PART_BYTES
from gpulayer_server.identity import GPUlayerHandler, either_credential

PIECE_BYTES = 1024 * 1024
PART_LIMIT_BYTES = ARTIFACT_PART_BYTES + 64 * 1024
"""A part and some slack for a client that counts in other units."""

READ_HERE_BYTES = 64 * 1024
"""Less than this mostly lies in the connection's buffer with the head."""

Piece = bytes | memoryview
_READERS_AND_WRITERS = frozenset({Role.CLIENT, Role.WORKER})
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BYTES = "application/octet-stream"


@stream_request_body
class ArtifactHandler(GPUlayerHandler):
    """One artifact.

    The body of a PUT arrives while nothing of the verb has run, so `prepare` authenticates it too, and a refusal found
    while it streams is kept until the verb answers.
    """

    _offset = 0
    _total = 0
    _is_complete = False
    _refusal: GPUlayerError | None = None
    _received_bytes = 0
    _left_bytes = 0
    _waiting_bytes = 0
    _storing: asyncio.Task[None] | None = None

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler narrows it
        await super().prepare()
        if self.request.method != "PUT":
            return
        self.caller = await self.authenticate(Action.EXECUTE, _READERS_AND_WRITERS)
        self._digest = _digest(self.path_kwargs["sha256"])
        self._offset, self._total = self._count("offset"), self._count("total")
        length = int(self.request.headers.get("Content-Length") or 0)
        if length > PART_LIMIT_BYTES:
            self.set_header("Connection", "close")
            raise _part_too_large()
        self._pieces: list[bytes] = []
        connection = self.request.connection
        # Whoever expects to be told to go on is told so after `prepare`, and sends nothing before.
        if length > READ_HERE_BYTES and isinstance(connection, HTTP1Connection) and "Expect" not in self.request.headers:
            await self._receive(connection, length)

    async def _receive(self, connection: HTTP1Connection, length: int) -> None:
        """Take the body from the socket into two pieces of memory in turn: one is filled while the other is stored.

        By way of `data_received` every byte is copied four times on the loop, which takes longer than to receive it.
        """
        self._left_bytes = length
        size = min(PIECE_BYTES, length)
        filling, storing = bytearray(size), bytearray(size if size < length else 0)
        try:
            # Once refused, what is left is the connection's to read and drop.
            while self._left_bytes and self._refusal is None:
                piece = memoryview(filling)[: min(size, self._left_bytes)]
                await self._begin_to_store(piece[: await self._fill(connection, piece)])
                filling, storing = storing, filling
            await self._stored()
        except StreamClosedError:
            await self._stored()  # the connection learns of it too when it goes on
        finally:
            # What the connection is to read when it goes on after `prepare`, whatever this ended with.
            self.request.headers["Content-Length"] = str(self._left_bytes)

    async def _fill(self, connection: HTTP1Connection, piece: memoryview) -> int:
        """Fill the piece, or as much of it as comes before the sender goes; at least one byte.

        Raises:
            StreamClosedError: the sender has gone before that.
        """
        filled = 0
        try:
            while filled < len(piece):
                count = await connection.stream.read_into(piece[filled:], partial=True)  # type: ignore[arg-type]  # any buffer will do
                filled += count
                self._received_bytes += count
                self._left_bytes -= count
        except StreamClosedError:
            if not filled:
                raise
        return filled

    async def data_received(self, chunk: bytes) -> None:
        if self.request.method != "PUT" or self._refusal is not None or self._finished:
            return
        self._received_bytes += len(chunk)
        if self._received_bytes > PART_LIMIT_BYTES:
            self._refusal = _part_too_large()
            return
        self._pieces.append(chunk)
        self._waiting_bytes += len(chunk)
        if self._waiting_bytes >= PIECE_BYTES:
            await self._store_pieces()

    async def _store_pieces(self) -> None:
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._waiting_bytes = 0
        await self._begin_to_store(data)

    async def _begin_to_store(self, data: Piece) -> None:
        """Begin to store what has come, once what came before it is stored."""
        await self._stored()
        if self._refusal is None:
            self._storing = asyncio.create_task(self._store(data, self._offset))
            self._offset += len(data)

    async def _stored(self) -> None:
        if self._storing is not None:
            storing, self._storing = self._storing, None
            await storing

    async def _store(self, data: Piece, offset: int) -> None:
        try:
            self._is_complete = await self.host.control_plane.put_artifact_part(
                self._digest, offset=offset, total_bytes=self._total, data=data
            )
        except GPUlayerError as error:
            self._refusal = error  # raised here, tornado would close the connection without an answer

    @either_credential(Action.EXECUTE, _READERS_AND_WRITERS)
    async def put(self, sha256: str) -> None:  # noqa: ARG002 (taken in `prepare`)
        if self._refusal is None and (self._pieces or not self._received_bytes):
            await self._store_pieces()
        await self._stored()
        if self._refusal is not None:
            raise self._refusal
        await self.finish({"complete": self._is_complete, "offset": self._offset})

    @either_credential(Action.READ, _READERS_AND_WRITERS)
    async def head(self, sha256: str) -> None:
        self.set_header("Content-Length", str(await asyncio.to_thread(self._size, _digest(sha256))))
        await self.finish(set_content_type=_BYTES)

    @either_credential(Action.READ, _READERS_AND_WRITERS)
    async def get(self, sha256: str) -> None:
        file, size = await asyncio.to_thread(self._open, _digest(sha256))
        try:
            self.set_header("Content-Type", _BYTES)
            self.set_header("Content-Length", str(size))
            reading = asyncio.create_task(asyncio.to_thread(file.read, PIECE_BYTES))
            while piece := await reading:
                reading = asyncio.create_task(asyncio.to_thread(file.read, PIECE_BYTES))
                self.write(piece)
                await self.flush()  # waits while the reader is slow, so that no more than two pieces are in memory
        except StreamClosedError:
            await reading
            return  # the reader has gone
        finally:
            file.close()
        await self.finish(set_content_type=_BYTES)

    def _size(self, sha256: Digest) -> int:
        return self._path(sha256).stat().st_size

    def _open(self, sha256: Digest) -> tuple[BinaryIO, int]:
        file = self._path(sha256).open("rb", buffering=0)
        return file, os.fstat(file.fileno()).st_size

    def _path(self, sha256: Digest) -> Path:
        """Where it lies; blocks for disk."""
        path: Path | None = self.host.control_plane.artifact_path(sha256)
        if path is None:
            raise UnknownArtifact("There is no such artifact here.", asked=sha256)
        return path

    def _count(self, name: str) -> int:
        text = self.get_query_argument(name, "")
        if not re.fullmatch(r"[0-9]{1,15}", text):
            raise InvalidSpec(
                f"A part names its `{name}` in bytes.", asked=f"{name}={text!r}", fix="PUT …/v1/artifacts/SHA256?offset=&total="
            )
        return int(text)


def _digest(text: str) -> Digest:
    if not _DIGEST.fullmatch(text):
        raise InvalidSpec("An artifact is named by its SHA-256 in lower-case hex.", asked=text[:80])
    return Digest(text)


def _part_too_large() -> TooLarge:
    return TooLarge(
        "A part of an artifact is too large.",
        found=f"a limit of {ARTIFACT_PART_BYTES} bytes a part",
        fix="Send the artifact in parts, each with its offset.",
    )
