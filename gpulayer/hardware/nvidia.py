"""NVIDIA devices through NVML, which needs no CUDA context. Runs in the agent."""

from __future__ import annotations

import importlib
import logging
from typing import Any

from gpulayer.protocol import Device

_log = logging.getLogger(__name__)


def find_cuda_devices() -> tuple[Device, ...]:
    """Every CUDA device, with its UUID in its id; none without a driver. A GPU in MIG mode stands for its instances.

    A GPU that the driver can't describe (one that has fallen off the bus) is left out: the others are still good.
    """
    pynvml: Any = importlib.import_module("pynvml")  # its functions carry no types
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        _log.debug("no NVIDIA devices: %s", error)
        return ()
    try:
        found: list[Device] = []
        for position in range(pynvml.nvmlDeviceGetCount()):
            try:
                found.extend(_devices_of_gpu(pynvml, position, first_index=len(found)))
            except pynvml.NVMLError as error:
                _log.warning("GPU %d is left out, the driver can't describe it: %s", position, error)
        return tuple(found)
    finally:
        pynvml.nvmlShutdown()


def _devices_of_gpu(nvml: Any, position: int, *, first_index: int) -> list[Device]:
    handle = nvml.nvmlDeviceGetHandleByIndex(position)
    instances = _mig_instances(nvml, handle)
    parts = instances if instances is not None else [handle]
    return [_describe(nvml, part, index=index, card=handle) for index, part in enumerate(parts, start=first_index)]


def _mig_instances(nvml: Any, handle: Any) -> list[Any] | None:
    """The instances of a GPU in MIG mode; None for one that is not."""
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:  # a GPU that knows no MIG
        return None
    if current != nvml.NVML_DEVICE_MIG_ENABLE:
        return None
    instances = []
    for position in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instances.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, position))
        except nvml.NVMLError:  # a place that holds no instance
            continue
    return instances


def _describe(nvml: Any, handle: Any, *, index: int, card: Any) -> Device:
    name = nvml.nvmlDeviceGetName(card)
    try:
        memory_bytes: int | None = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:  # GPUs that share the machine's memory tell none
        memory_bytes = None
    return Device(
        id=f"cuda:{_text(nvml.nvmlDeviceGetUUID(handle))}", accelerator="cuda", index=index, name=_text(name), memory_bytes=memory_bytes
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
