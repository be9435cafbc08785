"""What a job displays, as text, for places that show nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gpulayer.client.client import Client
from gpulayer.errors import GPUlayerError
from gpulayer.protocol import Display

_TEXT = "text/plain"


def display_text(display: Display, client: Client) -> str:
    """Its text, fetched where it is long; of what has none, or none to be had, its MIME types."""
    payload = display.data.get(_TEXT)
    if payload is not None and payload.text is not None:
        return payload.text
    if payload is not None and payload.artifact is not None:
        with tempfile.TemporaryDirectory(prefix="gpulayer-display-") as folder:
            file = Path(folder) / "text"
            try:
                client.transport.get_artifact(payload.artifact, file)
                return file.read_text(encoding="utf-8", errors="replace")
            except (GPUlayerError, OSError) as error:
                return f"<{', '.join(display.data)}; its text could not be fetched: {error}>"
    return f"<{', '.join(display.data)}>" if display.data else ""
