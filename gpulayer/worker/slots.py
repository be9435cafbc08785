"""Which of this worker's devices are held by which attempt. The control plane decides; this only refuses contradictions."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from gpulayer.errors import Conflict
from gpulayer.protocol import AttemptRef, Device


class Slots:
    """The devices of one worker; thread-safe."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self._lock = threading.Lock()
        self._holders: dict[str, AttemptRef | None] = {device.id: None for device in devices}

    @property
    def capacity(self) -> int:
        """The most tasks that can run here at once."""
        return len(self._holders)

    @property
    def free(self) -> int:
        with self._lock:
            return sum(holder is None for holder in self._holders.values())

    def hold(self, devices: Iterable[Device], attempt: AttemptRef) -> None:
        """Give all of these to an attempt, or none.

        Raises:
            Conflict: a device is not this worker's, or another attempt still holds it.
        """
        wanted = [device.id for device in devices]
        with self._lock:
            for device in wanted:
                if device not in self._holders:
                    raise Conflict("The assignment names a device that this worker does not have.", asked=device)
                holder = self._holders[device]
                if holder is not None and holder != attempt:
                    raise Conflict("The device is still held.", asked=device, found=f"attempt {holder.attempt} of task {holder.task_id}")
            for device in wanted:
                self._holders[device] = attempt

    def release(self, attempt: AttemptRef) -> None:
        """Give back whatever this attempt holds."""
        with self._lock:
            for device, holder in self._holders.items():
                if holder == attempt:
                    self._holders[device] = None
