"""Executes a notebook in a kernel of a running Jupyter server, as a browser does: sessions API and the kernel's WebSocket.

Used by `make demo`, by the tests and for the reference copies. Outputs are folded as a front end folds them: text of one
stream is joined, an updated display replaces the one it updates.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import httpx
import nbformat
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

Message = dict[str, Any]


class CellFailed(Exception):
    """A cell ended red; the message holds its error's name, value and traceback."""

    def __init__(self, ename: str, evalue: str, traceback: list[str]) -> None:
        super().__init__(f"{ename}: {evalue}\n" + "\n".join(traceback))
        self.ename, self.evalue, self.traceback = ename, evalue, traceback


@dataclass
class CellRun:
    """What one executed cell left behind."""

    outputs: list[dict[str, Any]] = field(default_factory=list)
    error: CellFailed | None = None
    messages: list[tuple[float, Message]] = field(default_factory=list)
    """Every output message with the seconds since the cell started."""

    @property
    def text(self) -> str:
        """All that the cell shows, as plain text."""
        parts = []
        for output in self.outputs:
            if output["output_type"] == "stream":
                parts.append(output["text"])
            elif output["output_type"] == "error":
                parts.append("\n".join(output["traceback"]))
            else:
                parts.append(output["data"].get("text/plain", ""))
        return "\n".join(parts)


class ServedKernel:
    """One kernel, started through the server's sessions API.

    Args:
        url: the server's address with its base URL.
        token: Jupyter's token.
        path: the notebook's path below the server's root; the kernel starts in that notebook's folder.
    """

    def __init__(self, url: str, token: str, path: str) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"token {token}"}
        self._http = httpx.Client(base_url=self._url, headers=self._headers, timeout=60)
        created = self._http.post("/api/sessions", json={"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}})
        created.raise_for_status()
        self.session_id = created.json()["id"]
        self.kernel_id = created.json()["kernel"]["id"]
        self._loop = asyncio.new_event_loop()
        self._socket: WebSocketClientConnection = self._loop.run_until_complete(self._connect())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the session, and with it the kernel."""
        self._loop.run_until_complete(self._disconnect())
        self._http.delete(f"/api/sessions/{self.session_id}")
        self._http.close()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def interrupt(self) -> None:
        """What the stop button does; may be called from another thread."""
        httpx.post(f"{self._url}/api/kernels/{self.kernel_id}/interrupt", headers=self._headers, timeout=30).raise_for_status()

    def execute(
        self,
        source: str,
        *,
        timeout: float = 180.0,
        check: bool = True,
        on_message: Callable[[CellRun, Message], None] | None = None,
        metadata: Message | None = None,
    ) -> CellRun:
        """Run one cell to its end.

        Args:
            source: the cell.
            timeout: seconds until `TimeoutError`.
            check: raise `CellFailed` when the cell ends red.
            on_message: called for each output message as it comes.
            metadata: sent with the cell; JupyterLab sends the cell's own.
        """
        run = self._loop.run_until_complete(asyncio.wait_for(self._execute(source, on_message, metadata or {}), timeout))
        if check and run.error:
            raise run.error
        return run

    async def _connect(self) -> WebSocketClientConnection:
        query = urlencode({"session_id": uuid.uuid4().hex})
        address = self._url.replace("http", "ws", 1) + f"/api/kernels/{self.kernel_id}/channels?{query}"
        return await websocket_connect(HTTPRequest(address, headers=self._headers), max_message_size=64 * 1024 * 1024)

    async def _disconnect(self) -> None:
        # Closing writes a frame, and outside of a running loop tornado would make a second loop for its future.
        self._socket.close()

    async def _execute(self, source: str, on_message: Callable[[CellRun, Message], None] | None, metadata: Message) -> CellRun:
        request = _execute_request(source) | {"metadata": metadata}
        await self._socket.write_message(json.dumps(request))
        run, displays, started = CellRun(), {}, time.monotonic()
        replied = idle = False
        while not (replied and idle):
            raw = await self._socket.read_message()
            if raw is None:
                raise ConnectionError("The server closed the kernel's channel before the cell had ended.")
            message = json.loads(raw)
            if message["parent_header"].get("msg_id") != request["header"]["msg_id"]:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "execute_reply":
                replied = True
                if content["status"] == "error" and run.error is None:
                    # A UsageError is written to stderr by IPython and has no error output; the reply alone says that the cell failed.
                    run.error = CellFailed(content["ename"], content["evalue"], content["traceback"])
            elif kind == "status":
                idle = content["execution_state"] == "idle"
            elif kind != "execute_input":
                run.messages.append((time.monotonic() - started, message))
                _fold(run, displays, kind, content)
                if on_message:
                    on_message(run, message)
        return run


def execute_notebook(kernel: ServedKernel, notebook: nbformat.NotebookNode, *, timeout: float = 180.0) -> list[CellRun]:
    """Run every code cell in order, keeping the outputs in `notebook`; the first red cell raises `CellFailed`."""
    runs = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        run = kernel.execute(cell.source, timeout=timeout, check=False)
        runs.append(run)
        cell.outputs = [nbformat.from_dict(output) for output in run.outputs]
        cell.execution_count = len(runs)
        if run.error:
            raise run.error
    return runs


def _execute_request(source: str) -> Message:
    return {
        "header": {
            "msg_id": uuid.uuid4().hex,
            "username": "",
            "session": uuid.uuid4().hex,
            "msg_type": "execute_request",
            "version": "5.3",
            "date": "",
        },
        "parent_header": {},
        "metadata": {},
        "content": {
            "code": source,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        },
        "channel": "shell",
        "buffers": [],
    }


def _fold(run: CellRun, displays: dict[str, dict[str, Any]], kind: str, content: Message) -> None:
    outputs = run.outputs
    if kind == "stream":
        if outputs and outputs[-1]["output_type"] == "stream" and outputs[-1]["name"] == content["name"]:
            outputs[-1]["text"] += content["text"]
        else:
            outputs.append({"output_type": "stream", "name": content["name"], "text": content["text"]})
    elif kind in ("display_data", "execute_result"):
        output = {"output_type": kind, "data": content["data"], "metadata": content["metadata"]}
        if kind == "execute_result":
            output["execution_count"] = content["execution_count"]
        outputs.append(output)
        if display_id := content.get("transient", {}).get("display_id"):
            displays[display_id] = output
    elif kind == "update_display_data":
        shown = displays.get(content["transient"]["display_id"])
        if shown is not None:
            shown["data"], shown["metadata"] = content["data"], content["metadata"]
    elif kind == "clear_output":
        outputs.clear()
    elif kind == "error":
        outputs.append({"output_type": "error", "ename": content["ename"], "evalue": content["evalue"], "traceback": content["traceback"]})
        run.error = CellFailed(content["ename"], content["evalue"], content["traceback"])
