"""Devices and who holds them."""

from __future__ import annotations

import queue
import threading

import pytest

from gpulayer.errors import Conflict
from gpulayer.protocol import AttemptRef, Device, TaskId
from gpulayer.worker.slots import Slots

DEVICES = tuple(Device(id=f"cpu:{index}", accelerator="cpu", index=index) for index in range(3))
FIRST, SECOND = (AttemptRef(task_id=TaskId(f"job{number}.0"), attempt=1) for number in range(2))


def _hold(slots: Slots, devices, attempt: AttemptRef, *, wait_seconds: float = 0.0, give_up: threading.Event | None = None) -> None:
    slots.hold(devices, attempt, wait_seconds=wait_seconds, give_up=give_up or threading.Event())


def test_devices_are_held_all_or_none() -> None:
    slots = Slots(DEVICES)
    _hold(slots, DEVICES[:2], FIRST)
    _hold(slots, DEVICES[:2], FIRST)  # the same assignment again
    with pytest.raises(Conflict, match="still held"):
        _hold(slots, DEVICES[1:], SECOND)
    _hold(slots, DEVICES[2:], SECOND)
    slots.release(FIRST)
    _hold(slots, DEVICES, SECOND)
    with pytest.raises(Conflict, match="still held"):
        _hold(slots, DEVICES[:1], FIRST)
    assert slots.capacity == 3


def test_a_device_of_another_worker_is_refused() -> None:
    with pytest.raises(Conflict, match="does not have"):
        _hold(Slots(DEVICES), (Device(id="cuda:GPU-1", accelerator="cuda", index=0),), FIRST)


def test_a_held_device_is_waited_for_until_it_is_given_back_or_the_wait_is_given_up() -> None:
    slots = Slots(DEVICES)
    _hold(slots, DEVICES, FIRST)
    ended: queue.SimpleQueue[object] = queue.SimpleQueue()
    give_up = threading.Event()

    def wait() -> None:
        try:
            _hold(slots, DEVICES, SECOND, wait_seconds=60, give_up=give_up)
            ended.put("held")
        except Conflict:
            ended.put("refused")

    for end in ("refused", "held"):
        thread = threading.Thread(target=wait)
        thread.start()
        if end == "held":
            slots.release(FIRST)
        else:
            give_up.set()
            slots.wake()
        assert ended.get(timeout=30) == end
        thread.join()
        give_up.clear()
