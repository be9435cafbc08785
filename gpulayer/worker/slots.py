"""Which of this worker's devices are held by which attempt. The control plane decides; this only refuses contradictions."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import msgspec

from gpulayer.errors import Conflict
from gpulayer.protocol import AttemptRef, Device


class Slots:
    """The devices of one worker; thread-safe."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self._changed = threading.Condition()
        self._holders: dict[str, AttemptRef | None] = {device.id: None for device in devices}

    @property
    def capacity(self) -> int:
        """The most tasks that can run here at once."""
        return len(self._holders)

    def hold(self, devices: Iterable[Device], attempt: AttemptRef, *, wait_seconds: float, give_up: threading.Event) -> None:
        """Give all of these to an attempt, or none.

        Blocks while an earlier attempt that the control plane has given up is still being ended here.

        Raises:
            Conflict: a device is not this worker's, or another attempt still holds it after `wait_seconds`.
        """
        wanted = [device.id for device in devices]
        with self._changed:
            for device in wanted:
                if device not in self._holders:
                    raise Conflict("The assignment names a device that this worker does not have.", asked=device)
            self._changed.wait_for(lambda: give_up.is_set() or not self._held(wanted, attempt), timeout=wait_seconds)
            for device, holder in self._held(wanted, attempt).items():
                raise Conflict("The device is still held.", asked=device, found=f"attempt {holder.attempt} of task {holder.task_id}")
            for device in wanted:
                self._holders[device] = attempt

    def release(self, attempt: AttemptRef) -> None:
        """Give back whatever this attempt holds."""
        with self._changed:
            for device, holder in self._holders.items():
                if holder == attempt:
                    self._holders[device] = None
            self._changed.notify_all()

    def wake(self) -> None:
        """Let every waiter look at its `give_up` again."""
        with self._changed:
            self._changed.notify_all()

    def _held(self, devices: Iterable[str], attempt: AttemptRef) -> dict[str, AttemptRef]:
        """Which of these devices others hold."""
        holders = {device: self._holders[device] for device in devices}
        return {device: holder for device, holder in holders.items() if holder is not None and holder != attempt}


def own_devices(devices: Iterable[Device], boot: str) -> tuple[Device, ...]:
    """This worker's devices by ids that no other worker's have.

    A cpu device is a rank's place and a simulated one is nobody's: other workers of this host have their own of the same name.
    """
    return tuple(
        msgspec.structs.replace(device, id=f"{device.id}@{boot[:8]}") if device.accelerator == "cpu" or device.simulated else device
        for device in devices
    )
