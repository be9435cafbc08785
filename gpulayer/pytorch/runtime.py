"""`Runtime`: the device of this process, its place among the ranks, and what a training loop of one's own needs from both.

The Trainer stands on it; it works alone in any script. Runs in every process that trains.
"""

from __future__ import annotations

import atexit
import functools
import json
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from gpulayer.errors import InvalidSpec, Unsupported
from gpulayer.pytorch.data import move_batch, share_loader, shuffle_seed
from gpulayer.pytorch.precision import Precision
from gpulayer.pytorch.rank_context import RankContext, in_notebook, read_rank_context
from gpulayer.pytorch.strategy import DataParallel, SingleRank, Strategy
from gpulayer.spec import ACCELERATORS

_DEVICE_TYPES = {"rocm": "cuda"}  # torch drives ROCm under the name cuda
_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
_MEETING_LIMIT = timedelta(minutes=10)


class Runtime:
    """Device, ranks and precision of this process.

    With more than one rank the process group is set up by the first Runtime of a process, and shared by later ones.

    Args:
        accelerator: `auto` takes what the job was granted, else cuda, mps, cpu in this order.
        precision: see `gpulayer.pytorch.precision.SUPPORTED`.

    Raises:
        InvalidSpec: the accelerator is not the one that the job was granted, or does not run this precision.
        Unsupported: torch in this environment does not drive the device.
    """

    def __init__(self, accelerator: str = "auto", precision: str = "32-true") -> None:
        context = read_rank_context()
        self._context = context
        self.device = resolve_device(accelerator, context)
        self.precision = Precision(precision, self.device)
        if context.world_size > 1:
            _join_process_group(self.device)
        self.strategy: Strategy = DataParallel(self.device) if self.world_size > 1 else SingleRank()

    @property
    def rank(self) -> int:
        return dist.get_rank() if dist.is_initialized() else self._context.rank

    @property
    def local_rank(self) -> int:
        return self._context.local_rank

    @property
    def world_size(self) -> int:
        return dist.get_world_size() if dist.is_initialized() else self._context.world_size

    @property
    def is_rank_zero(self) -> bool:
        return self.rank == 0

    @property
    def output_dir(self) -> Path:
        """Where to write what should come back as artifacts; it is made when it is asked for.

        Outside a job it is `gpulayer_runs/here` beside the script, and in a kernel a temporary folder, one for each kernel:
        GPUlayer writes nothing beside a notebook.
        """
        folder = self._context.output_dir or (_kernels_folder() if in_notebook() else Path("gpulayer_runs") / "here")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def setup_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """The module on this device, wrapped in DDP where there are several ranks and something to train."""
        return self.strategy.wrap(module.to(self.device))

    def setup_dataloader(self, loader: Any, *, repeats: bool = True) -> DataLoader[Any]:
        """This rank's share of the loader; with one rank, the loader itself.

        All ranks call it together. Where the order is shuffled, call `loader.sampler.set_epoch(epoch)` at each epoch.

        Args:
            loader: a DataLoader; a `DistributedSampler` of one's own is kept.
            repeats: False leaves out the samples that are repeated to make shares equally long, as validation wants.

        Raises:
            Unsupported: the loader can't be shared out; the fix says how to write it.
        """
        if self.world_size == 1:
            return loader  # type: ignore[no-any-return]
        # Rank 0's seed counts: ranks that seeded differently would otherwise share out different orders.
        seed = self.gather(shuffle_seed(loader))[0]
        return share_loader(loader, rank=self.rank, world_size=self.world_size, seed=seed, repeats=repeats)

    def move(self, batch: Any) -> Any:
        """The batch with its tensors on this device."""
        return move_batch(batch, self.device)

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.world_size > 1:
            self.gather(None)

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """The mean of this tensor over all ranks, as a tensor of its own that holds no graph."""
        result = tensor.detach().clone()
        if self.world_size > 1:
            dist.all_reduce(result)
            result = result / self.world_size
        return result

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank. Values are plain JSON: torch's own gathering of objects would pickle them."""
        if self.world_size == 1:
            return [value]
        data = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8, device=self.device)
        sizes = [torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(self.world_size)]
        dist.all_gather(sizes, torch.tensor([data.numel()], device=self.device))
        lengths = [int(size) for size in sizes]
        padded = torch.zeros(max(lengths), dtype=torch.uint8, device=self.device)
        padded[: data.numel()] = data
        parts = [torch.empty_like(padded) for _ in range(self.world_size)]
        dist.all_gather(parts, padded)
        return [json.loads(bytes(part[:length].tolist())) for part, length in zip(parts, lengths, strict=True)]

    def teardown(self) -> None:
        """Leave the process group; done at exit by itself."""
        _leave_process_group()


@functools.cache
def _kernels_folder() -> Path:
    # Nobody removes it but the system: what a person has written there is theirs.
    return Path(tempfile.mkdtemp(prefix="gpulayer-output-"))


def resolve_device(accelerator: str, context: RankContext) -> torch.device:
    """The device of this process.

    Raises:
        InvalidSpec: no such accelerator, or not the one that the job was granted.
        Unsupported: torch in this environment does not drive it.
    """
    if accelerator not in ACCELERATORS:
        raise InvalidSpec(
            "There is no such accelerator.", asked=f"accelerator={accelerator!r}", fix=f"Use one of {', '.join(ACCELERATORS)}."
        )
    granted = context.accelerator
    if granted is not None and accelerator not in ("auto", granted):
        raise InvalidSpec(
            "The job runs on another accelerator than the code asks for.",
            asked=f"accelerator={accelerator!r}",
            found=f"the job was granted {granted}",
            fix=f"Leave accelerator='auto', or start the job with --accelerator {accelerator}.",
        )
    kind = granted or (_best_device_type() if accelerator == "auto" else accelerator)
    device_type = _DEVICE_TYPES.get(kind, kind)
    if device_type == "cuda":
        return _cuda_device(kind, context.local_rank)
    if device_type == "mps" and not torch.backends.mps.is_available():
        raise Unsupported("torch in this environment drives no Apple GPU.", asked="mps", fix="Use accelerator='cpu'.")
    if device_type == "mps" and context.world_size > 1:
        raise InvalidSpec(
            "MPS drives one device in one process (ADR-0006).", asked=f"mps on {context.world_size} ranks", fix="Use one device."
        )
    return torch.device(device_type)


def _best_device_type() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _cuda_device(kind: str, local_rank: int) -> torch.device:
    if not torch.cuda.is_available():
        raise Unsupported(
            f"torch in this environment drives no {kind} device.",
            asked=kind,
            found=f"torch {torch.__version__}",
            fix="Install a torch build for this GPU, or use accelerator='cpu'.",
        )
    visible = torch.cuda.device_count()
    if local_rank >= visible:
        raise Unsupported(
            "There are more ranks on this node than GPUs that torch sees.",
            asked=f"local rank {local_rank}",
            found=f"{visible} visible",
            fix="Ask for as many devices per node as each worker has.",
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def _join_process_group(device: torch.device) -> None:
    if dist.is_initialized():
        return
    dist.init_process_group(_BACKENDS[device.type], timeout=_MEETING_LIMIT, device_id=device if device.type == "cuda" else None)
    # Left at exit and not at the end of a fit: code after it may still use the group, and a second fit shares it.
    atexit.register(_leave_process_group)


def _leave_process_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
