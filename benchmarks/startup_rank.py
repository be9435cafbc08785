"""What each rank of a start-up runs, whoever started it: PyTorch imported, a group made, one step through DDP, and the end.

Every border is stamped with `time.monotonic()`, one clock for all processes of a machine, and printed at the end as one line.
Arguments: a nonce, and `cpu` (gloo) or `cuda` (NCCL, where the device's context and the first collective are what a start pays
for after the fork).
"""

import time

stamps = {"entered": time.monotonic()}

import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

FEATURES = 8


def stamp(name: str) -> None:
    """Note when this border is reached."""
    stamps[name] = time.monotonic()


def main(nonce: str, accelerator: str) -> None:
    """Start, make one step, and end."""
    stamp("imported")
    device = torch.device("cpu")
    if accelerator == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
        torch.cuda.synchronize(device)
        stamp("context")
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    stamp("met")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total = torch.full((1,), float(rank), device=device)
    dist.all_reduce(total)
    total = total.item()  # on a GPU: waits until it is there
    stamp("reduced")
    model = torch.nn.Linear(FEATURES, 1, bias=False, device=device)
    wrapped = DistributedDataParallel(model, device_ids=[device.index] if accelerator == "cuda" else None)
    wrapped(torch.full((1, FEATURES), float(rank), device=device)).sum().backward()
    gradient = model.weight.grad[0, 0].item()  # of the mean over the ranks
    stamp("stepped")
    # Before the group: the last of the two that is dropped joins the group's threads, and DDP's part of PyTorch 2.13 does it with the
    # interpreter's lock held, for which such a thread may be waiting to drop what the backward left. Seen in 4 of 12 plain runs.
    del wrapped
    dist.destroy_process_group()
    stamp("left")
    seen = {"nonce": nonce, "rank": rank, "world_size": world_size, "sum": total, "gradient": gradient, "stamps": stamps}
    # One write, with its end of line: other ranks may print to the same pipe.
    sys.stdout.write(json.dumps(seen) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
