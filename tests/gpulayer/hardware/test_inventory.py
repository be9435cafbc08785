from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from gpulayer.errors import InvalidSpec, Unsupported
from gpulayer.hardware.inventory import find_devices, find_frameworks, host_boot_id


def test_cpu_places_come_last_and_are_numbered():
    devices = find_devices(cpu_devices=3, simulate="cuda:2")
    assert [device.id for device in devices] == ["cuda:simulated-0", "cuda:simulated-1", "cpu:0", "cpu:1", "cpu:2"]
    assert [device.simulated for device in devices] == [True, True, False, False, False]
    assert [device.index for device in devices] == [0, 1, 0, 1, 2]


def test_several_kinds_are_simulated():
    assert [device.accelerator for device in find_devices(cpu_devices=0, simulate="cuda:1, mps:1")] == ["cuda", "mps"]


@pytest.mark.parametrize("text", ["cuda", "cuda:0", "cuda:-1", "tpu:1", "cuda:1,cuda:2", "mps:2", "", "cuda:1.5"])
def test_a_simulation_that_makes_no_sense(text):
    with pytest.raises(InvalidSpec) as caught:
        find_devices(cpu_devices=1, simulate=text)
    assert caught.value.asked == repr(text)


def test_a_negative_number_of_places():
    with pytest.raises(InvalidSpec):
        find_devices(cpu_devices=-1)


def test_frameworks_are_those_of_the_interpreter_that_was_named():
    found = find_frameworks(sys.executable)
    assert found["python"] == platform.python_version()
    assert found["torch"].count(".") == 2
    assert {"numpy", "safetensors", "gpulayer"} <= found.keys()
    assert "torch.mps" not in found or platform.system() == "Darwin"


def test_torch_is_not_imported_to_find_it(monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nclass Refuse:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith('torch.'): raise ImportError(name)\nsys.meta_path.insert(0, Refuse())"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "torch" in find_frameworks(sys.executable)


def test_an_interpreter_that_does_not_run():
    with pytest.raises(Unsupported) as caught:
        find_frameworks("/no/such/python")
    assert caught.value.asked == "/no/such/python"


def test_an_interpreter_that_is_broken(tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'libpython3.so is missing' >&2\nexit 127\n")
    broken.chmod(0o755)
    with pytest.raises(Unsupported, match=r"libpython3\.so is missing"):
        find_frameworks(str(broken))


def test_a_host_is_known_by_its_boot():
    assert host_boot_id() == host_boot_id() != ""


def test_the_agents_side_loads_no_torch():
    source = """
import sys
import gpulayer.runtime.task_process
from gpulayer.hardware.inventory import find_devices
find_devices(cpu_devices=1)
print("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout == "False\n"
