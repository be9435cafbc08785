from collections import namedtuple
from itertools import chain

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, SequentialSampler, WeightedRandomSampler

from gpulayer.errors import InvalidSpec, Unsupported
from gpulayer.pytorch.data import batch_size_of, move_batch, set_epoch, share_loader, shuffle_seed, windows

DATA = list(range(21))


def shares(loader: DataLoader, world_size: int, *, repeats: bool, epoch: int = 0) -> list[list[int]]:
    found = []
    for rank in range(world_size):
        shared = share_loader(loader, rank=rank, world_size=world_size, seed=5, repeats=repeats)
        set_epoch(shared, epoch)
        found.append([int(index) for batch in shared for index in batch])
    return found


@pytest.mark.parametrize("world_size", [2, 3, 4, 30])
@pytest.mark.parametrize("shuffle", [False, True])
def test_without_repeats_every_sample_is_there_once(world_size: int, shuffle: bool) -> None:
    found = shares(DataLoader(DATA, batch_size=4, shuffle=shuffle), world_size, repeats=False)
    assert sorted(chain(*found)) == DATA


def test_with_repeats_all_shares_are_equally_long() -> None:
    found = shares(DataLoader(DATA, batch_size=4), 4, repeats=True)
    assert [len(share) for share in found] == [6] * 4
    assert set(chain(*found)) == set(DATA)


def test_shuffling_is_kept_and_differs_by_epoch() -> None:
    loader = DataLoader(DATA, batch_size=4, shuffle=True)
    first, again, later = (shares(loader, 2, repeats=True, epoch=epoch) for epoch in (0, 0, 1))
    assert first == again != later
    assert set(chain(*later)) == set(DATA)
    assert shares(DataLoader(DATA, batch_size=4), 2, repeats=True)[0] == DATA[0::2]


def test_options_of_the_loader_are_kept() -> None:
    loader = DataLoader(DATA, batch_size=4, drop_last=True, collate_fn=tuple)
    shared = share_loader(loader, rank=0, world_size=2, seed=0, repeats=True)
    assert (shared.batch_size, shared.drop_last, shared.collate_fn) == (4, True, tuple)


def test_a_distributed_sampler_of_ones_own_is_kept() -> None:
    sampler = DistributedSampler(DATA, num_replicas=2, rank=1, shuffle=False)
    loader = DataLoader(DATA, batch_size=4, sampler=sampler)
    assert share_loader(loader, rank=1, world_size=2, seed=0, repeats=True) is loader
    unrepeated = share_loader(loader, rank=1, world_size=2, seed=0, repeats=False)
    assert [int(index) for batch in unrepeated for index in batch] == DATA[1::2]
    with pytest.raises(InvalidSpec, match="another place"):
        share_loader(loader, rank=0, world_size=2, seed=0, repeats=True)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(DATA)


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Stream(), batch_size=4),
        DataLoader(DATA, batch_size=4, sampler=WeightedRandomSampler([1.0] * 21, 21)),
        DataLoader(DATA, batch_sampler=type("Mine", (BatchSampler,), {})(SequentialSampler(DATA), 4, False)),
        DataLoader(DATA, batch_size=None),
        [[1, 2], [3, 4]],
    ],
    ids=["iterable", "sampler", "batch sampler", "no batches", "list"],
)
def test_what_would_be_doubled_is_refused(loader: object) -> None:
    with pytest.raises(Unsupported) as refused:
        share_loader(loader, rank=0, world_size=2, seed=0, repeats=True)
    assert refused.value.fix


def test_the_seed_is_the_generators_or_torchs() -> None:
    torch.manual_seed(11)
    assert shuffle_seed(DataLoader(DATA, shuffle=True)) == 11
    assert shuffle_seed(DataLoader(DATA, shuffle=True, generator=torch.Generator().manual_seed(12))) == 12


def test_windows() -> None:
    assert list(windows(range(10), 4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_batch_sizes() -> None:
    tensor = torch.zeros(3, 2)
    for batch in (tensor, (tensor, 1), {"a": "text", "b": [tensor]}, ["text", (tensor,)]):
        assert batch_size_of(batch) == 3
    assert batch_size_of(torch.tensor(1.0)) == batch_size_of("text") == batch_size_of({}) == 1


def test_moving_keeps_the_batchs_form() -> None:
    pair = namedtuple("pair", "x y")
    moved = move_batch({"p": pair(torch.ones(1), "text"), "l": [torch.ones(1)]}, torch.device("meta"))
    assert moved["p"].x.device.type == moved["l"][0].device.type == "meta"
    assert moved["p"].y == "text"
    assert type(moved["p"]) is pair
