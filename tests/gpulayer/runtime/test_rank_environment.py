from __future__ import annotations

from pathlib import Path

import pytest

from gpulayer.protocol import Device
from gpulayer.runtime.rank_environment import find_interface, is_scrubbed, task_environment, visible_devices


def make(base, *, devices=2, nodes=1, job_env=None, accelerator="cpu", **options):
    return task_environment(
        base,
        job_env=job_env or {},
        job_id="j",
        task_id="j.0",
        attempt=3,
        node=0,
        nodes=nodes,
        devices=tuple(Device(id=f"cpu:{n}", accelerator="cpu", index=n) for n in range(devices)),
        accelerator=accelerator,
        workspace=Path("/w"),
        **options,
    )


def test_what_every_process_of_a_task_is_told():
    env = make({}, devices=2)
    assert {name: value for name, value in env.items() if name.startswith("GPULAYER_")} == {
        "GPULAYER_JOB_ID": "j",
        "GPULAYER_TASK_ID": "j.0",
        "GPULAYER_ATTEMPT": "3",
        "GPULAYER_NODE": "0",
        "GPULAYER_NODES": "1",
        "GPULAYER_DEVICES": "2",
        "GPULAYER_ACCELERATOR": "cpu",
        "GPULAYER_OUTPUT_DIR": "/w/output",
        "GPULAYER_INPUTS_DIR": "/w/inputs",
        "GPULAYER_DISPLAYS_DIR": "/w/displays",
        "GPULAYER_ADDRESS": "127.0.0.1",
    }


OUTER = (
    "SLURM_PROCID",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "RANK",
    "WORLD_SIZE",
    "MASTER_PORT",
    "JPY_PARENT_PID",
    "MPLBACKEND",
    "FORCE_COLOR",
    "CLICOLOR_FORCE",
    "PAGER",
    "TERM",
    "COLUMNS",
    "TTY_INTERACTIVE",
    "TORCHELASTIC_RUN_ID",
    "PET_NNODES",
    "GPULAYER_TOKEN",
    "CUDA_VISIBLE_DEVICES",
)


@pytest.mark.parametrize("name", OUTER)
def test_variables_of_whatever_started_the_agent_are_kept_from_jobs(name):
    assert is_scrubbed(name)
    assert make({name: "outer", "HOME": "/h"}).get(name) != "outer"


def test_what_belongs_to_the_user_stays():
    env = make({"HOME": "/h", "PATH": "/bin", "LD_LIBRARY_PATH": "/l", "RANKING": "1"})
    assert (env["HOME"], env["PATH"], env["LD_LIBRARY_PATH"], env["RANKING"]) == ("/h", "/bin", "/l", "1")


def test_a_job_may_set_what_gpulayer_only_proposes():
    env = make({}, job_env={"PYTHONUNBUFFERED": "", "OMP_NUM_THREADS": "4", "MPLBACKEND": "agg"}, ranks_per_node=2)
    assert (env["PYTHONUNBUFFERED"], env["OMP_NUM_THREADS"], env["MPLBACKEND"]) == ("", "4", "agg")
    proposed = make({}, ranks_per_node=2)
    assert (proposed["PYTHONUNBUFFERED"], proposed["OMP_NUM_THREADS"]) == ("1", "1")
    assert "OMP_NUM_THREADS" not in make({})


def test_output_is_for_a_terminal_that_draws_whatever_the_agents_own_is():
    env = make({"TERM": "dumb", "TTY_COMPATIBLE": "0", "COLUMNS": "300", "NO_COLOR": "1"})
    assert (env["TERM"], env["TTY_COMPATIBLE"], env["NO_COLOR"]) == ("xterm-256color", "1", "1")
    assert "COLUMNS" not in env
    asked = {"TERM": "vt100", "TTY_COMPATIBLE": "0", "COLUMNS": "60"}
    assert asked.items() <= make({}, job_env=asked).items()


def test_devices_are_named_by_uuid_and_a_cpu_job_sees_none():
    cards = (Device(id="cuda:GPU-a", accelerator="cuda", index=1), Device(id="cuda:MIG-b", accelerator="cuda", index=0))
    assert visible_devices(cards, "cuda") == {"CUDA_VISIBLE_DEVICES": "GPU-a,MIG-b"}
    assert visible_devices((), "cpu")["CUDA_VISIBLE_DEVICES"] == ""
    assert visible_devices((Device(id="cuda:simulated-0", accelerator="cuda", index=0, simulated=True),), "cuda") == {}


def test_ranks_use_the_interface_on_which_they_meet():
    loopback = find_interface("127.0.0.1")
    assert loopback is not None
    env = make({}, nodes=2, address="127.0.0.1")
    assert (env["GLOO_SOCKET_IFNAME"], env["NCCL_SOCKET_IFNAME"], env["TP_SOCKET_IFNAME"]) == (loopback,) * 3
    assert make({}, nodes=2, address="127.0.0.1", job_env={"GLOO_SOCKET_IFNAME": "eth7"})["GLOO_SOCKET_IFNAME"] == "eth7"
    assert find_interface("192.0.2.1") is None
    assert find_interface("a-name") is None
    # Ranks of one node meet on loopback whatever address the worker has.
    assert make({}, nodes=1, ranks_per_node=2, address="192.0.2.1")["GPULAYER_ADDRESS"] == "127.0.0.1"
