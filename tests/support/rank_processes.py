"""Ranks without torchrun: a script in several processes that meet through a file, so that no port can be taken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MEET = """
import os
import torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + os.environ["TEST_MEETING_FILE"],
                        rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
"""
LEAVE = """
dist.destroy_process_group()
"""
"""A process that ends with its group up may be aborted by a thread of the group that is still there."""


def run_ranks(script: str, folder: Path, world_size: int, **variables: str) -> list[str]:
    """Run the script on `world_size` ranks of one node in `folder`; returns each rank's output, and fails if one failed."""
    (folder / "ranks.py").write_text(MEET + script + LEAVE)
    processes = []
    for rank in range(world_size):
        environment = os.environ | variables
        environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size)}
        environment |= {"TEST_MEETING_FILE": str(folder / "meeting"), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
        processes.append(
            subprocess.Popen(
                [sys.executable, "ranks.py"], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output
    return outputs
