"""The ExtensionApp: its settings, and when the control plane opens and closes.

Runs in the Jupyter server's process. What happens then lives in `hosting.py`, what is served in `handlers/`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from traitlets import Integer, Unicode

from gpulayer import settings
from gpulayer_server.handlers import routes
from gpulayer_server.held_calls import HeldCallLimits
from gpulayer_server.hosting import ControlPlaneHost


class GPUlayerExtension(ExtensionApp):
    """Hosts GPUlayer's control plane in a Jupyter server."""

    name = "gpulayer"
    load_other_extensions = True

    home = Unicode(help="Folder of the hosted control plane; empty: GPULAYER_HOME, else the platform's data folder.").tag(config=True)
    max_held_calls = Integer(
        HeldCallLimits().client, min=1, help="How many calls one user's kernels, terminals and pages may have waiting at once."
    ).tag(config=True)
    max_held_calls_of_a_worker = Integer(HeldCallLimits().worker, min=1, help="How many calls one worker may have waiting at once.").tag(
        config=True
    )

    host: ControlPlaneHost

    def initialize_settings(self) -> None:
        home = Path(self.home).expanduser().resolve() if self.home else settings.home()
        limits = HeldCallLimits(client=self.max_held_calls, worker=self.max_held_calls_of_a_worker)
        self.host = ControlPlaneHost(home, limits=limits, log=self.log)
        self.settings["gpulayer_host"] = self.host

    def initialize_handlers(self) -> None:
        self.handlers.extend(routes())

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        await self.host.open(serverapp)

    async def stop_extension(self) -> None:
        await self.host.close()
