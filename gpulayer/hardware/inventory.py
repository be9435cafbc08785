"""What a machine offers: its devices, its frameworks, and which boot of which host it is. Runs in the agent.

Nothing here imports torch: frameworks are found by a short-lived child of the interpreter that jobs will run under.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import uuid
from pathlib import Path

from gpulayer.errors import InvalidSpec, Unsupported
from gpulayer.hardware.apple import find_mps_devices
from gpulayer.hardware.nvidia import find_cuda_devices
from gpulayer.protocol import Device

_SIMULATED = re.compile(r"(cuda|rocm|mps):([1-9][0-9]{0,3})")
_PROBE_SECONDS = 60.0  # a cold network disk can take that long to give a Python its files
_PROBED = ("torch", "numpy", "safetensors", "scikit-learn", "gpulayer")

# Nothing is imported that takes time: versions come from the packages' metadata, what torch was built for from the file
# in which its build wrote that. Importing torch would hold up every start of a worker for seconds; an installation that
# doesn't load shows in the job that needs it, with the end of its stderr. A driver's cuInit makes no context.
_PROBE = """
import ctypes, importlib.util, json, os, platform, runpy, sys
from importlib import metadata
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
def has_cuda_driver():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
torch = importlib.util.find_spec("torch") if "torch" in found else None
if torch is not None and torch.origin:
    built = runpy.run_path(os.path.join(os.path.dirname(torch.origin), "version.py"))
    found["torch"] = built["__version__"].partition("+")[0]
    if built.get("cuda") and has_cuda_driver():
        found["torch.cuda"] = built["cuda"]
    if built.get("hip") and os.path.exists("/dev/kfd"):
        found["torch.rocm"] = built["hip"]
    if (platform.system(), platform.machine()) == ("Darwin", "arm64"):
        found["torch.mps"] = ""
sys.stdout.write("\\n" + json.dumps(found))
"""


def find_devices(*, cpu_devices: int, simulate: str | None = None) -> tuple[Device, ...]:
    """The devices of this machine: accelerators, then `cpu_devices` places for CPU ranks.

    Args:
        cpu_devices: how many CPU ranks may run here at once.
        simulate: such as `cuda:4` or `cuda:4,mps:1`: pretend devices in the place of the real accelerators, for trying out
            scheduling.

    Raises:
        InvalidSpec: `simulate` cannot be read.
    """
    if cpu_devices < 0:
        raise InvalidSpec("A worker offers a whole number of cpu devices, from 0.", asked=f"cpu_devices={cpu_devices}")
    accelerators = (*find_cuda_devices(), *find_mps_devices()) if simulate is None else _simulated_devices(simulate)
    places = (Device(id=f"cpu:{index}", accelerator="cpu", index=index, name="CPU") for index in range(cpu_devices))
    return (*accelerators, *places)


def _simulated_devices(text: str) -> tuple[Device, ...]:
    devices: list[Device] = []
    for part in text.split(","):
        match = _SIMULATED.fullmatch(part.strip())
        if match is None:
            raise InvalidSpec(
                "Simulated devices are written as kind:count.", asked=repr(text), fix="Write cuda:4, or cuda:4,mps:1 for two kinds."
            )
        kind, count = match[1], int(match[2])
        if any(device.accelerator == kind for device in devices):
            raise InvalidSpec("Each kind of simulated device is named once.", asked=repr(text), fix=f"Add up the counts for {kind}.")
        if kind == "mps" and count > 1:
            raise InvalidSpec("A machine has one MPS device.", asked=repr(text), fix="Write mps:1.")
        devices.extend(
            Device(id=f"{kind}:simulated-{index}", accelerator=kind, index=index, name=f"simulated {kind}", simulated=True)
            for index in range(count)
        )
    return tuple(devices)


def find_frameworks(python: str) -> dict[str, str]:
    """Versions and capabilities that jobs under this interpreter will find: `torch`, `torch.cuda`, `numpy`, `python`, …

    Raises:
        Unsupported: the interpreter does not run; with the end of what it printed.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GPULAYER_")}
    try:
        probe = subprocess.run(
            [python, "-P", "-c", _PROBE, *_PROBED],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            env=env,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unsupported(
            "The interpreter for jobs does not run.", asked=python, found=str(error), fix="Name another with --python."
        ) from error
    if probe.returncode != 0:
        lines = probe.stderr.decode(errors="replace").strip().splitlines()
        raise Unsupported(
            "The interpreter for jobs does not run.", asked=python, found=" / ".join(lines[-3:]) or f"exit code {probe.returncode}"
        )
    found: dict[str, str] = json.loads(probe.stdout.splitlines()[-1])
    return found


def host_boot_id() -> str:
    """One value for all processes of one boot of one host, whatever addresses it has."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # macOS: the address of its network hardware and when it was started.
        started = subprocess.run(["sysctl", "-n", "kern.boottime"], capture_output=True, text=True, check=False).stdout
        return f"{uuid.getnode():012x}-{re.sub(r'[^0-9]', '', started.partition(',')[0])}"
