"""The reference for transfers: a bare tornado server that writes a body to a file, and a file to an answer. Nothing else.

`python benchmarks/bare_server.py FOLDER` prints its port and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler, stream_request_body

PIECE_BYTES = 1024 * 1024
LARGEST_BYTES = 64 * 1024**3


@stream_request_body
class FileHandler(RequestHandler):
    """PUT and GET of one file."""

    def initialize(self, folder: Path) -> None:
        self._folder = folder

    def prepare(self) -> None:
        if self.request.method == "PUT":
            assert self.request.connection is not None
            self.request.connection.set_max_body_size(LARGEST_BYTES)
            self._file = (self._folder / self.path_kwargs["name"]).open("wb")

    def data_received(self, chunk: bytes) -> None:
        self._file.write(chunk)

    def put(self, name: str) -> None:  # noqa: ARG002 (opened in `prepare`)
        self._file.close()

    async def get(self, name: str) -> None:
        path = self._folder / name
        self.set_header("Content-Length", str(path.stat().st_size))
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                self.write(piece)
                await self.flush()


@contextlib.contextmanager
def bare_server(folder: Path) -> Iterator[str]:
    """The server as a process of its own; gives its root."""
    folder.mkdir()
    with subprocess.Popen([sys.executable, __file__, str(folder)], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
        finally:
            process.terminate()


async def serve(folder: Path) -> None:
    sockets = bind_sockets(0, "127.0.0.1")
    server = HTTPServer(Application([(r"/(?P<name>[a-z.]+)", FileHandler, {"folder": folder})]))
    server.add_sockets(sockets)
    print(sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(Path(sys.argv[1])))
