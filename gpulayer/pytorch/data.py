"""Batches and loaders: a loader's share for one rank, a batch's size and its way to the device.

What can't be shared out without changing what the user wrote is refused, never doubled in silence. Runs in every process
that trains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, RandomSampler, Sampler, SequentialSampler

from gpulayer.errors import InvalidSpec, Unsupported


class WithoutRepeats(Sampler[int]):
    """A distributed sampler's share without the indices it repeats to make all shares equally long."""

    def __init__(self, sampler: DistributedSampler[Any]) -> None:
        self._sampler = sampler
        total = len(sampler.dataset)  # type: ignore[arg-type]
        # Rank r holds places r, r + world, …; places past the data set's end are repeats, and they come last.
        self._length = len(sampler) if sampler.drop_last else len(range(sampler.rank, total, sampler.num_replicas))

    def __iter__(self) -> Iterator[int]:
        return islice(iter(self._sampler), self._length)

    def __len__(self) -> int:
        return self._length

    def set_epoch(self, epoch: int) -> None:
        self._sampler.set_epoch(epoch)


def share_loader(loader: Any, *, rank: int, world_size: int, seed: int, repeats: bool) -> DataLoader[Any]:
    """This rank's share of a loader: the same data set, options and kind of order, with a `DistributedSampler`.

    Args:
        loader: the loader that the user wrote.
        rank: whose share.
        world_size: how many shares.
        seed: the same on all ranks; decides the order where the loader shuffles.
        repeats: whether a few samples are repeated so that all shares are equally long, which training needs.

    Raises:
        Unsupported: the loader can't be shared out; the fix says how to write it.
    """
    if type(loader) is not DataLoader:
        raise Unsupported(
            "Only a plain torch DataLoader can be shared out among ranks.",
            asked=f"a {type(loader).__name__} on {world_size} ranks",
            fix="Pass a DataLoader, or train on one device.",
        )
    if isinstance(loader.dataset, IterableDataset):
        raise Unsupported(
            "An IterableDataset has no indices to share out: every rank would see all of it.",
            asked=f"{type(loader.dataset).__name__} on {world_size} ranks",
            fix="Use a data set with __len__ and __getitem__, or train on one device.",
        )
    if loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler:
        raise Unsupported(
            "A batch sampler of your own can't be shared out among ranks.",
            asked=f"{type(loader.batch_sampler or loader.sampler).__name__} on {world_size} ranks",
            fix="Use batch_size=… with shuffle=True or a DistributedSampler.",
        )
    sampler: Sampler[int] = _shared_sampler(loader, rank=rank, world_size=world_size, seed=seed)
    if not repeats and type(sampler) is DistributedSampler:
        sampler = WithoutRepeats(sampler)
    if sampler is loader.sampler:
        return loader
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=sampler,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
        in_order=loader.in_order,
    )


def _shared_sampler(loader: DataLoader[Any], *, rank: int, world_size: int, seed: int) -> Sampler[int]:
    sampler = loader.sampler
    if isinstance(sampler, DistributedSampler):
        if (sampler.num_replicas, sampler.rank) != (world_size, rank):
            raise InvalidSpec(
                "The loader's own DistributedSampler is for another place.",
                asked=f"rank {sampler.rank} of {sampler.num_replicas}",
                found=f"rank {rank} of {world_size}",
                fix="Leave the sampler to GPUlayer, or make it from Runtime().rank and Runtime().world_size.",
            )
        return sampler
    plain_shuffle = type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(loader.dataset)  # type: ignore[arg-type]
    if not plain_shuffle and type(sampler) is not SequentialSampler:
        raise Unsupported(
            "A sampler of your own can't be shared out among ranks: every rank would draw all of it.",
            asked=f"{type(sampler).__name__} on {world_size} ranks",
            fix="Use shuffle=True, or a sampler that derives from DistributedSampler.",
        )
    return DistributedSampler(loader.dataset, num_replicas=world_size, rank=rank, shuffle=plain_shuffle, seed=seed)


def shuffle_seed(loader: Any) -> int:
    """The seed that this loader's order hangs on: its own generator's, else torch's."""
    generators = (getattr(getattr(loader, "sampler", None), "generator", None), getattr(loader, "generator", None))
    generator = next((found for found in generators if found is not None), None)
    return (torch.initial_seed() if generator is None else generator.initial_seed()) % 2**31


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell a sampler that orders anew by epoch which one begins."""
    begin_epoch = getattr(getattr(loader, "sampler", None), "set_epoch", None)
    if begin_epoch is not None:
        begin_epoch(epoch)


def windows(batches: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """The batches in groups of `size`, the last one as long as what is left: how long it is must be known before its first loss."""
    iterator = iter(batches)
    while window := list(islice(iterator, size)):
        yield window


def batch_size_of(batch: Any) -> int:
    """The length of the first tensor found in the batch; 1 where there is none."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.ndim else 1
    if isinstance(batch, Mapping):
        batch = tuple(batch.values())
    if isinstance(batch, list | tuple):
        for part in batch:
            if isinstance(part, torch.Tensor | Mapping | list | tuple):
                return batch_size_of(part)
    return 1


def move_batch(batch: Any, device: torch.device) -> Any:
    """The batch with every tensor in it on this device; anything with a `to` method of its own is moved by that."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=batch.is_pinned() if device.type == "cuda" else False)
    if isinstance(batch, Mapping):
        return {key: move_batch(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move_batch(value, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(move_batch(value, device) for value in batch)
    return batch.to(device) if hasattr(batch, "to") else batch
