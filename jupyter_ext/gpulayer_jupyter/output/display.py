"""What every place offers that a job's output goes to: the cell, or a terminal. Runs in the kernel's main thread."""

from __future__ import annotations

from typing import Protocol

from gpulayer.client.log_lines import LogLine
from gpulayer_jupyter.output.view_text import JobView


class OutputPlace(Protocol):
    """Where a job's output goes; called in the main thread only."""

    def show(self, view: JobView, lines: list[LogLine]) -> None:
        """Something has changed; `lines` are those that came since the last call."""

    def pending_seconds(self) -> float | None:
        """When `show` wants to be called again although nothing changes; None: not at all."""

    def close(self, view: JobView) -> None:
        """The final state."""
