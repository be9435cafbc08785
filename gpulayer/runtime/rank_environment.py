"""The environment of a task's processes: what every rank is told, what is kept from it, which devices it sees.

Runs in the agent. The ranks' side reads these names in `rank_main`, `rendezvous` and `gpulayer.pytorch`.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from gpulayer.protocol import Device

JOB_ID = "GPULAYER_JOB_ID"
TASK_ID = "GPULAYER_TASK_ID"
ATTEMPT = "GPULAYER_ATTEMPT"
NODE = "GPULAYER_NODE"
NODES = "GPULAYER_NODES"
DEVICES = "GPULAYER_DEVICES"
ACCELERATOR = "GPULAYER_ACCELERATOR"
OUTPUT_DIR = "GPULAYER_OUTPUT_DIR"
INPUTS_DIR = "GPULAYER_INPUTS_DIR"
DISPLAYS_DIR = "GPULAYER_DISPLAYS_DIR"
"""Where rank 0 puts what it displays; made by whoever displays first."""
ADDRESS = "GPULAYER_ADDRESS"
"""Where other nodes reach this one; node 0 listens there for its ranks."""
CHANNEL = "GPULAYER_CHANNEL"
"""Path of the agent's unix socket; set by the task process, which owns the socket."""

LISTENER = "GPULAYER_LISTENER"
"""On rank 0 that no torchrun started: the number of the open socket on which it serves the ranks' store."""

LOOPBACK = "127.0.0.1"

# Variables of whatever started the agent. A rank that inherits them sees another launcher's world, a notebook's display
# back end, or a credential that isn't meant for it.
_SCRUBBED_PREFIXES = (
    "GPULAYER_",
    "SLURM_",
    "SLURMD_",
    "SRUN_",
    "OMPI_",
    "PMI_",
    "PMI2_",
    "PMIX_",
    "MPI_",
    "HYDRA_",
    "I_MPI_",
    "MV2_",
    "FLUX_",
    "PALS_",
    "LSB_",
    "PBS_",
    "PET_",
    "TORCHELASTIC_",
    "JPY_",
    "JUPYTERHUB_",
)
_SCRUBBED_NAMES = frozenset(
    {
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_NAME",
        "ROLE_WORLD_SIZE",
        "NODE_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "JUPYTER_TOKEN",
        "MPLBACKEND",
        "FORCE_COLOR",
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "PAGER",
        "GIT_PAGER",
        "TTY_COMPATIBLE",
        "TTY_INTERACTIVE",
        "TERM",
        "COLUMNS",
        "LINES",
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
    }
)


# No COLUMNS: ps and dpkg cut their lines at it also where they write into a pipe.
_TERMINAL = {"TTY_COMPATIBLE": "1", "TERM": "xterm-256color"}


def task_environment(
    base: Mapping[str, str],
    *,
    job_env: Mapping[str, str],
    job_id: str,
    task_id: str,
    attempt: int,
    node: int,
    nodes: int,
    devices: Sequence[Device],
    accelerator: str,
    workspace: Path,
    ranks_per_node: int = 1,
    address: str = LOOPBACK,
) -> dict[str, str]:
    """The full environment of a task's processes.

    Args:
        base: the agent's own environment.
        job_env: what the job asks for; it wins over everything but GPUlayer's names and the devices.
        job_id: the job.
        task_id: this node's share of it.
        attempt: which try this is.
        node: this node's place, from 0.
        nodes: how many there are.
        devices: what this node was granted.
        accelerator: their kind.
        workspace: holds `source/`, `inputs/` and `output/`.
        ranks_per_node: how many ranks share this node (1 for a command).
        address: where other nodes reach this one.
    """
    env = dict(_without_scrubbed(tuple(base.items())))
    env.setdefault("PYTHONUNBUFFERED", "1")
    # A job's output is drawn as a terminal draws it: rich asks for that by the first name, many others by the second.
    env.update(_TERMINAL)
    if ranks_per_node > 1:
        env.setdefault("OMP_NUM_THREADS", "1")
    meets_at = address if nodes > 1 else LOOPBACK
    interface = find_interface(meets_at) if nodes > 1 or ranks_per_node > 1 else None
    if interface is not None:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
            env.setdefault(name, interface)
    env.update(job_env)
    env.update(
        {
            JOB_ID: job_id,
            TASK_ID: task_id,
            ATTEMPT: str(attempt),
            NODE: str(node),
            NODES: str(nodes),
            DEVICES: str(len(devices)),
            ACCELERATOR: accelerator,
            OUTPUT_DIR: f"{workspace}/output",
            INPUTS_DIR: f"{workspace}/inputs",
            DISPLAYS_DIR: f"{workspace}/displays",
            ADDRESS: meets_at,
        }
    )
    env.update(visible_devices(devices, accelerator))
    return env


def run_id(job_id: str, attempt: int) -> str:
    """What tells an attempt of a job from every other, for torch."""
    return f"{job_id}.{attempt}"


@functools.lru_cache(maxsize=4)  # an agent has one environment and many tasks
def _without_scrubbed(base: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in base if not is_scrubbed(name))


def is_scrubbed(name: str) -> bool:
    """Whether a variable of the agent's environment is kept from jobs."""
    return name in _SCRUBBED_NAMES or name.startswith(_SCRUBBED_PREFIXES)


def visible_devices(devices: Sequence[Device], accelerator: str) -> dict[str, str]:
    """The variables that limit a process to its devices.

    CUDA devices are named by UUID, since NVML's order is not CUDA's. A cpu job sees no GPU: those belong to other jobs.
    For simulated devices nothing is set.
    """
    if any(device.simulated for device in devices):
        return {}
    if accelerator == "cuda":
        return {"CUDA_VISIBLE_DEVICES": ",".join(device.id.removeprefix("cuda:") for device in devices)}
    if accelerator == "cpu":
        return {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    return {}


def find_interface(address: str) -> str | None:
    """The network interface that holds this numeric address, or None."""
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        return None
    for interface, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family in (socket.AF_INET, socket.AF_INET6) and ipaddress.ip_address(entry.address.split("%")[0]) == wanted:
                return str(interface)
    return None
