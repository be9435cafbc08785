"""The code that reads NVML, against a stand-in for the driver that tells what NVML's functions tell."""

from __future__ import annotations

import sys
import types
from types import SimpleNamespace

import pytest

from gpulayer.hardware.nvidia import find_cuda_devices


class NVMLError(Exception):
    pass


@pytest.fixture
def driver(monkeypatch):
    """Two GPUs: a whole one, whose UUID comes as bytes as from old drivers, and one that is split by MIG."""
    whole = SimpleNamespace(uuid=b"GPU-1", name=b"H100", memory=80, mig=None)
    split = SimpleNamespace(
        uuid="GPU-2",
        name="A100",
        memory=40,
        mig=[SimpleNamespace(uuid="MIG-a", memory=5), None, SimpleNamespace(uuid="MIG-b", memory=None)],
    )

    def mig_mode(gpu):
        if gpu.mig is None:
            raise NVMLError("not supported")
        return 1, 1

    def mig_instance(gpu, position):
        if gpu.mig[position] is None:
            raise NVMLError("not found")
        return gpu.mig[position]

    def memory(part):
        if part.memory is None:
            raise NVMLError("not supported")
        return SimpleNamespace(total=part.memory)

    nvml = types.ModuleType("pynvml")
    nvml.__dict__.update(
        NVMLError=NVMLError,
        NVML_DEVICE_MIG_ENABLE=1,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=[whole, split].__getitem__,
        nvmlDeviceGetMigMode=mig_mode,
        nvmlDeviceGetMaxMigDeviceCount=lambda gpu: len(gpu.mig),
        nvmlDeviceGetMigDeviceHandleByIndex=mig_instance,
        nvmlDeviceGetName=lambda gpu: gpu.name,
        nvmlDeviceGetUUID=lambda part: part.uuid,
        nvmlDeviceGetMemoryInfo=memory,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


def test_devices_are_keyed_by_uuid_and_mig_instances_stand_for_their_gpu(driver):
    assert [(device.id, device.index, device.name, device.memory_bytes) for device in find_cuda_devices()] == [
        ("cuda:GPU-1", 0, "H100", 80),
        ("cuda:MIG-a", 1, "A100", 5),
        ("cuda:MIG-b", 2, "A100", None),
    ]


def test_no_driver_means_no_devices(driver):
    def fail():
        raise NVMLError("driver not loaded")

    driver.nvmlInit = fail
    assert find_cuda_devices() == ()


@pytest.mark.parametrize("place", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetUUID"])
def test_a_lost_gpu_is_left_out_and_logged(driver, place, caplog):
    ask, broken = getattr(driver, place), {"nvmlDeviceGetUUID": "GPU-1"}.get(place, "GPU-2")

    def lost(gpu):
        if place == "nvmlDeviceGetHandleByIndex" and gpu == 1:
            raise NVMLError("GPU is lost")
        if place != "nvmlDeviceGetHandleByIndex" and gpu.uuid in (broken, broken.encode()):
            raise NVMLError("GPU is lost")
        return ask(gpu)

    setattr(driver, place, lost)
    found = find_cuda_devices()
    assert [(device.id, device.index) for device in found] == (
        [("cuda:MIG-a", 0), ("cuda:MIG-b", 1)] if broken == "GPU-1" else [("cuda:GPU-1", 0)]
    )
    assert "GPU is lost" in caplog.text
