"""What each rank of `thread_sharing.py` runs: training steps of a three-layer MLP with one number of threads after the other.

Arguments as JSON: widths, the numbers of threads (0: what PyTorch chose for itself), rounds, and the seconds of one turn. The
first rank prints the median step of each turn.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BATCH = 64
WARM_UP = 2
"""Steps after each change; the faster one tells how many a turn has."""


def training_step(width: int) -> Callable[[], float]:
    """One step, with the exchange of gradients where there are several ranks; calling it tells the seconds."""
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

    return step


def turn(step: Callable[[], float], threads: int, seconds: float) -> float:
    """The median step with so many threads; every rank makes as many steps as the first one has time for."""
    torch.set_num_threads(threads)
    warm_up = min(step() for _ in range(WARM_UP))
    count = torch.tensor([max(1, int(seconds / warm_up))])
    dist.broadcast(count, src=0)
    return statistics.median(step() for _ in range(int(count)))


def main(widths: list[int], threads: list[int], rounds: int, seconds: float) -> None:
    """Measure; the group meets in a file, so that nothing of a launcher is at work."""
    meeting = f"file://{os.environ['GPULAYER_BENCHMARK_STORE']}"
    dist.init_process_group("gloo", init_method=meeting, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    own_choice = torch.get_num_threads()
    chosen = [number or own_choice for number in threads]
    took: dict[int, list[list[float]]] = {}
    for width in widths:
        step = training_step(width)
        took[width] = [[turn(step, number, seconds) for number in chosen] for _ in range(rounds)]
    seen: dict[str, Any] = {"world_size": dist.get_world_size(), "threads": chosen, "took": took}
    is_first = dist.get_rank() == 0
    del step  # before the group, see `startup_rank.py`
    dist.destroy_process_group()
    if is_first:
        sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
