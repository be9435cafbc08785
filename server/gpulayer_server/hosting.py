"""The control plane as this Jupyter server hosts it: opened off the loop, announced in the connection file, ended in time.

Runs in the Jupyter server's loop. Handlers take the control plane from here, so that what comes too early or too late gets
an answer that says so.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from gpulayer import settings
from gpulayer.control import ControlPlane
from gpulayer.errors import GPUlayerError, Interrupted, ServerUnreachable
from gpulayer_server.connection_file import ConnectionFile, remove_stale_files, server_url, write_connection_file
from gpulayer_server.held_calls import HeldCallLimits, HeldCalls
from gpulayer_server.local_workers import ServerLocalWorkers

CONNECTION_FILE_VARIABLE = "GPULAYER_CONNECTION_FILE"
STOP_SECONDS = 5.0
"""The most that stopping may add to the server's own shutdown; service managers kill after 10 s, some sooner."""


class ControlPlaneHost:
    """Opens, offers and closes the control plane of one home.

    Args:
        home: created when it is opened.
        limits: how many held calls an identity may have.
        log: the extension's logger.
    """

    def __init__(self, home: Path, *, limits: HeldCallLimits, log: logging.Logger) -> None:
        self.home = home
        self.held_calls = HeldCalls(limits)
        self.local_workers: ServerLocalWorkers | None = None
        self.connection_file: ConnectionFile | None = None
        self.allowed_hosts: set[str] = set()
        """`Host` headers that Jupyter has found right; what it finds of one doesn't change while it runs."""
        self.instance = secrets.token_hex(8)  # of this start of the server
        self._log = log
        self._control_plane: ControlPlane | None = None
        self._opening: asyncio.Task[None] | None = None
        self._refusal: GPUlayerError = ServerUnreachable("The control plane is starting.", fix="Try again in a moment.")

    @property
    def control_plane(self) -> ControlPlane:
        """The open control plane.

        Raises:
            GPUlayerError: why there is none: not yet, not any more, or it could not be opened.
        """
        if self._control_plane is None:
            raise self._refusal
        return self._control_plane

    async def open(self, serverapp: Any) -> None:
        """Open the control plane and announce it; a failure is logged and answered to whoever asks."""
        self._opening = asyncio.ensure_future(self._open(serverapp))
        try:
            await self._opening
        except asyncio.CancelledError:
            if not self._opening.cancelled():
                self._opening.cancel()
                raise
            # Cancelled by `close`: the server stops before it was up.
        except GPUlayerError as error:
            self._refusal = error
            self._log.error("GPUlayer's control plane could not be opened. %s", error)
        except Exception:  # noqa: BLE001 (Jupyter goes on without us; callers learn it from every answer)
            self._refusal = ServerUnreachable("The control plane could not be opened.", fix="The Jupyter server's log says why.")
            self._log.exception("GPUlayer's control plane could not be opened")

    async def _open(self, serverapp: Any) -> None:
        url = server_url(serverapp)
        self.local_workers = ServerLocalWorkers(url)
        control_plane = await ControlPlane.open(self.home, local_workers=self.local_workers, serves_browsers=True)
        self._control_plane = control_plane
        for token in await asyncio.to_thread(remove_stale_files, self.home):
            await control_plane.revoke_token(token)
        token = await control_plane.issue_client_token(settings.os_user(), valid_seconds=None)
        self.connection_file = await asyncio.to_thread(write_connection_file, self.home, url=url, base_url=serverapp.base_url, token=token)
        os.environ[CONNECTION_FILE_VARIABLE] = str(self.connection_file.path)
        self._log.info("GPUlayer's control plane is open on %s", self.home)

    async def close(self) -> None:
        """End held calls, withdraw the connection file, close the control plane: within 5 s, without ever raising."""
        control_plane, self._control_plane = self._control_plane, None
        self._refusal = Interrupted("The Jupyter server is stopping.", fix="Jobs go on; ask again once it is back.")
        try:
            async with asyncio.timeout(STOP_SECONDS):
                if self._opening is not None and not self._opening.done():
                    self._opening.cancel()
                    await asyncio.wait([self._opening])
                    control_plane, self._control_plane = control_plane or self._control_plane, None
                await self._attempt(self.held_calls.end_all())
                await self._attempt(self._withdraw(control_plane))
                if control_plane is not None:
                    await self._attempt(control_plane.close())
        except TimeoutError:
            self._log.warning("GPUlayer's control plane did not close within %s s; its database is consistent all the same", STOP_SECONDS)

    async def _withdraw(self, control_plane: ControlPlane | None) -> None:
        withdrawn, self.connection_file = self.connection_file, None
        if withdrawn is None:
            return
        if os.environ.get(CONNECTION_FILE_VARIABLE) == str(withdrawn.path):
            del os.environ[CONNECTION_FILE_VARIABLE]
        await asyncio.to_thread(withdrawn.remove)
        if control_plane is not None:
            await control_plane.revoke_token(withdrawn.token)

    async def _attempt(self, step: Awaitable[None]) -> None:
        try:
            await step
        except Exception:  # noqa: BLE001 (one step that fails must keep neither the others nor Jupyter's own shutdown from running)
            self._log.exception("A step of stopping GPUlayer failed")
