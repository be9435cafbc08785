"""Artifacts: content-addressed bytes, streamed both ways in pieces.

Files are read off the loop; what is received goes to the control plane piece by piece, so that no part is ever held whole.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import BinaryIO

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

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler narrows it
        await super().prepare()
        self._piece = bytearray()
        if self.request.method != "PUT":
            return
        self.caller = await self.authenticate(Action.EXECUTE, _READERS_AND_WRITERS)
        self._digest = _digest(self.path_kwargs["sha256"])
        self._offset, self._total = self._count("offset"), self._count("total")
        if int(self.request.headers.get("Content-Length") or 0) > PART_LIMIT_BYTES:
            self.set_header("Connection", "close")
            raise _part_too_large()

    async def data_received(self, chunk: bytes) -> None:
        if self.request.method != "PUT" or self._refusal is not None or self._finished:
            return
        self._received_bytes += len(chunk)
        if self._received_bytes > PART_LIMIT_BYTES:
            self._refusal = _part_too_large()
            return
        self._piece += chunk
        if len(self._piece) >= PIECE_BYTES:
            await self._store_piece()

    async def _store_piece(self) -> None:
        data = bytes(self._piece)
        self._piece.clear()
        try:
            self._is_complete = await self.host.control_plane.put_artifact_part(
                self._digest, offset=self._offset, total_bytes=self._total, data=data
            )
        except GPUlayerError as error:
            self._refusal = error  # raised here, tornado would close the connection without an answer
        self._offset += len(data)

    @either_credential(Action.EXECUTE, _READERS_AND_WRITERS)
    async def put(self, sha256: str) -> None:  # noqa: ARG002 (taken in `prepare`)
        if self._refusal is None and (self._piece or not self._received_bytes):
            await self._store_piece()
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
            while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                self.write(piece)
                await self.flush()  # waits while the reader is slow, so that no more than a piece is in memory
        except StreamClosedError:
            return  # the reader has gone
        finally:
            file.close()
        await self.finish(set_content_type=_BYTES)

    def _size(self, sha256: Digest) -> int:
        return self._path(sha256).stat().st_size

    def _open(self, sha256: Digest) -> tuple[BinaryIO, int]:
        file = self._path(sha256).open("rb")
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
