"""What each rank of `thread_sharing.py` runs: training steps of a three-layer MLP, its step times printed by the first rank.

Arguments: the most steps of each width, widths. Which threads it computes with, its environment has said before PyTorch is imported.
"""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BATCH = 64
WARM_UP = 3
SECONDS = 1.0
"""The most that all steps of one width are to take."""


def median_step(width: int, steps: int) -> float:
    """Seconds of a step, with the exchange of gradients where there are several ranks."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 1)]
    model = torch.nn.Sequential(*layers)
    trained = DistributedDataParallel(model) if dist.get_world_size() > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs, targets = torch.randn(BATCH, width), torch.randn(BATCH, 1)

    def step() -> float:
        began = time.perf_counter()
        loss = torch.nn.functional.mse_loss(trained(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return time.perf_counter() - began

    warm_up = [step() for _ in range(WARM_UP)]
    # Ranks whose threads fight for cores can take a hundred times as long; every rank makes as many steps as the first one says.
    count = torch.tensor([min(steps, max(1, int(SECONDS / min(warm_up))))])
    dist.broadcast(count, src=0)
    took = [step() for _ in range(int(count))]
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    return statistics.median(took)


def main(steps: int, widths: list[int]) -> None:
    """Measure every width; the group is a file's, so that nothing of a launcher is at work."""
    meeting = f"file://{os.environ['GPULAYER_BENCHMARK_STORE']}"
    dist.init_process_group("gloo", init_method=meeting, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    seconds = {width: median_step(width, steps) for width in widths}
    world_size, is_first = dist.get_world_size(), dist.get_rank() == 0
    dist.destroy_process_group()
    if is_first:
        seen = {"threads": torch.get_num_threads(), "world_size": world_size, "seconds": seconds}
        sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(word) for word in sys.argv[2:]])
