"""What a job displays, fetched where it is large, and as text for places that show nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gpulayer.client.client import Client
from gpulayer.errors import GPUlayerError
from gpulayer.protocol import Display, DisplayPayload

_TEXT = "text/plain"


def display_text(display: Display, client: Client) -> str:
    """Its text, fetched where it is long; of what has none, or none to be had, its MIME types."""
    payload = display.data.get(_TEXT)
    if payload is not None and payload.text is not None:
        return payload.text
    if payload is not None:
        try:
            return payload_bytes(payload, client).decode(errors="replace")
        except (GPUlayerError, OSError) as error:
            return f"<{', '.join(display.data)}; its text could not be fetched: {error}>"
    return f"<{', '.join(display.data)}>" if display.data else ""


def payload_bytes(payload: DisplayPayload, client: Client) -> bytes:
    """One form of a display.

    Raises:
        UnknownArtifact: it is not there any more.
    """
    if payload.artifact is None:
        return (payload.text or "").encode()
    with tempfile.TemporaryDirectory(prefix="gpulayer-display-") as folder:
        file = Path(folder) / "form"
        client.transport.get_artifact(payload.artifact, file)
        return file.read_bytes()
