"""The Jupyter server's side of GPUlayer: it hosts the control plane in the server's loop and answers for it over HTTP.

Runs in the Jupyter server's process only. What the calls mean lives in `gpulayer.control`.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from gpulayer_server.extension import GPUlayerExtension

    return [{"module": "gpulayer_server", "app": GPUlayerExtension}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "gpulayer"}]
