"""The control plane: what it stores, whom it wakes, where jobs go. It knows no HTTP and runs in one asyncio loop."""

from gpulayer.control.control_plane import ControlPlane
from gpulayer.control.local_workers import LocalWorkers
from gpulayer.control.tokens import Caller

__all__ = ["Caller", "ControlPlane", "LocalWorkers"]
