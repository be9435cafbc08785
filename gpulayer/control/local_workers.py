"""What a host of the control plane offers to start workers on its own machine: processes (server) or threads (embedded)."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from gpulayer.protocol import StartLocalWorkers

LOCAL_START_SECONDS = 60.0
"""How long started workers may take to register: an interpreter's start and the look for frameworks, on a slow disk."""


class LocalWorkers(Protocol):
    async def start(self, request: StartLocalWorkers, *, home: Path, join_tokens: list[str]) -> None:
        """Start `request.count` workers with `request.python`, one join token each.

        Returns once they are started, not once they have registered.
        """

    def interpreters(self, home: Path) -> list[str]:
        """The interpreters that workers of this home were started with and that are still there, the last one first; may block."""
