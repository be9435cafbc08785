"""A job's whole output as a download, written while it is read: one page of it is in memory, however slow its reader is."""

from __future__ import annotations

import asyncio

from tornado.iostream import StreamClosedError

from gpulayer.calls import Action, Role
from gpulayer.control.client_calls import LARGEST_CURSOR
from gpulayer.errors import InvalidSpec
from gpulayer.protocol import JobId
from gpulayer_server.identity import GPUlayerHandler, either_credential
from gpulayer_server.log_text import PlainLog

PAGE_BYTES = 256 * 1024
FORMS = ("plain", "raw")


class LogDownloadHandler(GPUlayerHandler):
    """What there is at the moment of asking; what comes later is not waited for."""

    @either_credential(Action.READ, frozenset({Role.CLIENT}))
    async def get(self, job_id: str) -> None:
        rank, form = self._rank(), self.get_query_argument("form", FORMS[0])
        if form not in FORMS:
            raise InvalidSpec("There is no such form of a log.", asked=f"form={form!r}", fix=f"Use one of {', '.join(FORMS)}.")
        read_logs = self.host.control_plane.read_logs
        last = await read_logs(job_id=JobId(job_id), rank=rank, before=LARGEST_CURSOR, limit_bytes=1)
        end = last.chunks[-1].sequence if last.chunks else 0
        plain = PlainLog(names_ranks=rank is None) if form == "plain" else None
        self._set_headers(job_id, rank)
        after = 0
        try:
            while after < end:
                page = await read_logs(job_id=JobId(job_id), rank=rank, after=after, limit_bytes=PAGE_BYTES)
                after = page.next
                chunks = [chunk for chunk in page.chunks if chunk.sequence <= end]
                # In a thread: what a terminal would show of a page takes longer than the loop can be held up.
                self.write(b"".join(chunk.data for chunk in chunks) if plain is None else await asyncio.to_thread(plain.feed, chunks))
                await self.flush()  # waits while the reader is slow
            if plain is not None:
                self.write(await asyncio.to_thread(plain.finish))
        except StreamClosedError:
            return  # the reader has gone
        await self.finish(set_content_type=_TEXT)

    def _set_headers(self, job_id: str, rank: int | None) -> None:
        of_rank = "" if rank is None else f"-rank-{rank}"
        self.set_header("Content-Type", _TEXT)
        # The id is one that the store knows: it has no character that a header would mind.
        self.set_header("Content-Disposition", f'attachment; filename="{job_id}{of_rank}.log.txt"')
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")

    def _rank(self) -> int | None:
        text = self.get_query_argument("rank", "")
        if not text:
            return None
        if not text.isdecimal() or len(text) > 9:
            raise InvalidSpec("A rank is a whole number from 0.", asked=f"rank={text[:80]!r}")
        return int(text)


_TEXT = "text/plain; charset=utf-8"
