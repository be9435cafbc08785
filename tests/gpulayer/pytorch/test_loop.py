"""The loop against training written by hand, on one rank and on two."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from support.rank_processes import run_ranks
from support.small_module import Line, make_data, make_module, train_by_hand
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader

from gpulayer.errors import InvalidSpec
from gpulayer.pytorch import Trainer
from gpulayer.pytorch.loop import EpochMeans

READS = ("item", "cpu", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__")


def same_weights(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


# ---- one rank


@pytest.mark.parametrize("accumulate", [1, 3, 4, 20])
def test_equals_the_loop_by_hand(accumulate: int) -> None:
    """10 batches: windows of 4 leave a last one of 2, and 20 leave one of 10."""
    ours, theirs = make_module(), make_module()
    Trainer(max_epochs=3, accumulate_grad_batches=accumulate).fit(ours, DataLoader(make_data(40), batch_size=4))
    train_by_hand(theirs, DataLoader(make_data(40), batch_size=4), epochs=3, accumulate=accumulate)
    assert same_weights(ours, theirs)
    assert not same_weights(ours, make_module())


def test_shuffled_order_is_the_loaders_own() -> None:
    def loader() -> DataLoader[Any]:
        return DataLoader(make_data(40), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3))

    ours, theirs = make_module(), make_module()
    Trainer(max_epochs=2).fit(ours, loader())
    train_by_hand(theirs, loader(), epochs=2)
    assert same_weights(ours, theirs)


def test_any_iterable_of_batches_trains_on_one_rank() -> None:
    batches = list(DataLoader(make_data(40), batch_size=4))
    ours, theirs = make_module(), make_module()
    Trainer(accumulate_grad_batches=4).fit(ours, batches)
    train_by_hand(theirs, batches, epochs=1, accumulate=4)
    assert same_weights(ours, theirs)


def test_figures_are_means_over_samples() -> None:
    """Nine samples in batches of 4, 4 and 1: the mean of the batches' means would be another number."""
    module = make_module()
    trainer = Trainer(max_epochs=2, enable_progress=False)
    trainer.fit(module, DataLoader(make_data(8), batch_size=4), DataLoader(make_data(9), batch_size=4))
    inputs, targets, _ = make_data(9)[:]
    with torch.no_grad():
        expected = (module.layers(inputs) - targets).abs().mean().item()
    assert trainer.callback_metrics["val_error"] == pytest.approx(expected, abs=1e-6)
    assert [list(figures) for figures in trainer.history] == [["epoch", "train_loss", "loss", "val_error"]] * 2
    assert trainer.history[1]["train_loss"] == trainer.history[1]["loss"] == trainer.callback_metrics["loss"]
    assert all(type(value) is float for value in trainer.callback_metrics.values())
    assert module.seen == [*range(9)] * 2


def test_modes_are_left_as_they_were() -> None:
    class Watched(Line):
        def training_step(self, batch: Any, batch_index: int) -> torch.Tensor:
            assert self.training
            assert self.layers.training
            return super().training_step(batch, batch_index)

        def validation_step(self, batch: Any, batch_index: int) -> None:
            assert not self.training
            assert not torch.is_grad_enabled()

    module = Watched()
    module.layers.eval()
    loader = DataLoader(make_data(8), batch_size=4)
    Trainer(max_epochs=2).fit(module, loader, loader)
    assert module.training
    assert not module.layers.training


def test_bf16_mixed_trains() -> None:
    module = make_module()
    trainer = Trainer(precision="bf16-mixed", max_epochs=5, enable_progress=False)
    trainer.fit(module, DataLoader(make_data(40), batch_size=4))
    assert trainer.history[-1]["loss"] < trainer.history[0]["loss"]
    assert all(parameter.dtype == torch.float32 for parameter in module.parameters())


def test_what_a_module_gets_wrong_is_named() -> None:
    class NoLoss(Line):
        def training_step(self, batch: Any, batch_index: int) -> Any:
            return None

    class NoOptimizer(Line):
        def configure_optimizers(self) -> Any:
            return None

    loader = DataLoader(make_data(8), batch_size=4)
    with pytest.raises(InvalidSpec, match="returned no loss"):
        Trainer().fit(NoLoss(), loader)
    with pytest.raises(InvalidSpec, match="returned no optimizer"):
        Trainer().fit(NoOptimizer(), loader)
    with pytest.raises(InvalidSpec, match="no batch"):
        Trainer().fit(make_module(), DataLoader(make_data(3), batch_size=4, drop_last=True))


def test_means_of_numbers_and_tensors() -> None:
    means = EpochMeans()
    for value, weight in ((1.0, 3), (5.0, 1)):
        means.add("number", value, weight)
        means.add("tensor", torch.tensor([value]), weight)
        means.add("count", torch.tensor(int(value)), weight)
    assert means.read() == dict.fromkeys(("number", "tensor", "count"), (8.0, 4))
    assert EpochMeans().read() == {}


# ---- no reads from the device


class ScalarReads(TorchDispatchMode):
    """Counts the operation behind every way of reading a number from a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += "_local_scalar_dense" in str(func)
        return func(*args, **(kwargs or {}))


@contextmanager
def counted_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    calls: list[str] = []

    def counting(name: str) -> Any:
        original = getattr(torch.Tensor, name)

        def counted(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return original(self, *args, **kwargs)

        return counted

    scalars = ScalarReads()
    with monkeypatch.context() as patch, scalars:
        for name in READS:
            patch.setattr(torch.Tensor, name, counting(name))
        yield calls
    calls += ["_local_scalar_dense"] * scalars.count


def reads_of_an_epoch(monkeypatch: pytest.MonkeyPatch, module: Line, steps: int) -> list[str]:
    loader = DataLoader(make_data(steps * 2), batch_size=2)
    with counted_reads(monkeypatch) as calls:
        Trainer(accumulate_grad_batches=2, enable_progress=False).fit(module, loader)
    return calls


def test_steps_read_nothing_from_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch of 100 steps reads as often as one of 10: at its end, and where torch's loader draws its seed."""
    few, many = (reads_of_an_epoch(monkeypatch, make_module(), steps) for steps in (10, 100))
    assert few == many
    assert "tolist" in many  # the reading at the end of the epoch is seen, so others would be


def test_a_read_in_a_step_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reading(Line):
        def training_step(self, batch: Any, batch_index: int) -> torch.Tensor:
            loss = super().training_step(batch, batch_index)
            assert loss.item() == loss.item()
            return loss

    few, many = (reads_of_an_epoch(monkeypatch, Reading(), steps) for steps in (10, 100))
    assert len(many) - len(few) >= 180


# ---- two ranks

TWO_RANKS = """
import json
import torch
from torch.utils.data import DataLoader
from support.small_module import make_data, make_module
from gpulayer.pytorch import Module, Runtime, Trainer
from gpulayer.pytorch.strategy import DataParallel

exchanges = []
plain_wrap = DataParallel.wrap
def counting_wrap(self, module):
    wrapped = plain_wrap(self, module)
    def hook(state, bucket):
        exchanges.append(bucket.index())
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
        return allreduce_hook(None, bucket)
    wrapped.register_comm_hook(None, hook)
    return wrapped
DataParallel.wrap = counting_wrap

runtime = Runtime()
result = {"rank": runtime.rank, "world_size": runtime.world_size}
result["gathered"] = runtime.gather({"rank": runtime.rank, "text": "x" * runtime.rank})
result["mean"] = runtime.all_reduce(torch.tensor([float(runtime.rank)])).tolist()
for accumulate in (1, 2):
    exchanges.clear()
    module = make_module()
    trainer = Trainer(max_epochs=2, devices=2, accumulate_grad_batches=accumulate)
    trainer.fit(module, DataLoader(make_data(40), batch_size=4), DataLoader(make_data(21), batch_size=4))
    weights = [parameter.tolist() for parameter in module.parameters()]
    result[f"fit{accumulate}"] = {"weights": weights, "history": trainer.history, "seen": module.seen, "exchanges": len(exchanges)}

few = make_module()
trainer = Trainer(devices=2, enable_progress=False)
trainer.fit(few, DataLoader(make_data(8), batch_size=4), DataLoader(make_data(1), batch_size=4))
result["one_sample"] = {"seen": few.seen, "val_error": trainer.callback_metrics["val_error"]}
runtime.barrier()
with open(f"rank{runtime.rank}.json", "w") as file:
    json.dump(result, file)
"""


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("two-ranks")
    outputs = run_ranks(TWO_RANKS, folder, 2)
    results = [json.loads((Path(folder) / f"rank{rank}.json").read_text()) for rank in range(2)]
    return [result | {"output": output} for result, output in zip(results, outputs, strict=True)]


def test_ranks_know_each_other(two_ranks: list[dict[str, Any]]) -> None:
    for rank, result in enumerate(two_ranks):
        assert (result["rank"], result["world_size"], result["mean"]) == (rank, 2, [0.5])
        assert result["gathered"] == [{"rank": 0, "text": ""}, {"rank": 1, "text": "x"}]
        assert "epoch 1/2 train_loss " in result["output"]
        assert "epoch 2/2 train_loss " in result["output"]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_two_ranks_equal_one_process_with_batches_twice_as_large(two_ranks: list[dict[str, Any]], accumulate: int) -> None:
    """5 batches a rank: with windows of 2 the last one is short. Rank 0 takes the even samples, rank 1 the odd ones."""
    first, second = (result[f"fit{accumulate}"] for result in two_ranks)
    assert first["weights"] == second["weights"]
    assert first["history"] == second["history"]
    reference = make_module()
    train_by_hand(reference, DataLoader(make_data(40), batch_size=8), epochs=2, accumulate=accumulate)
    for ours, theirs in zip(first["weights"], reference.parameters(), strict=True):
        torch.testing.assert_close(torch.tensor(ours), theirs.detach(), rtol=0, atol=1e-6)


def test_gradients_are_exchanged_once_a_window(two_ranks: list[dict[str, Any]]) -> None:
    # One bucket holds all gradients of this module; 5 batches an epoch, 2 epochs.
    assert [two_ranks[0][f"fit{accumulate}"]["exchanges"] for accumulate in (1, 2)] == [10, 6]


def test_validation_counts_every_sample_once(two_ranks: list[dict[str, Any]]) -> None:
    for fit in ("fit1", "fit2"):
        seen = two_ranks[0][fit]["seen"] + two_ranks[1][fit]["seen"]
        assert sorted(seen) == sorted([*range(21)] * 2)
    alone = make_module()
    with torch.no_grad():
        for parameter, values in zip(alone.parameters(), two_ranks[0]["fit1"]["weights"], strict=True):
            parameter.copy_(torch.tensor(values))
        inputs, targets, _ = make_data(21)[:]
        expected = (alone.layers(inputs) - targets).abs().mean().item()
    assert two_ranks[0]["fit1"]["history"][-1]["val_error"] == pytest.approx(expected, abs=1e-6)


def test_a_rank_without_validation_samples_takes_part(two_ranks: list[dict[str, Any]]) -> None:
    assert [result["one_sample"]["seen"] for result in two_ranks] == [[0], []]
    assert two_ranks[0]["one_sample"]["val_error"] == two_ranks[1]["one_sample"]["val_error"]


# ---- what a rank says of its steps


@pytest.mark.parametrize("epochs", [1, 3])
def test_the_first_and_the_last_optimizer_step_are_marked_and_no_other(epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("gpulayer.runtime.rank_channel.mark", said.append)
    step = torch.optim.SGD.step

    def noted_step(self, *args):
        said.append("step")
        return step(self, *args)

    monkeypatch.setattr(torch.optim.SGD, "step", noted_step)
    module = make_module()
    validate = module.validation_step

    def noted_validation(*args):
        said.append("validation")
        return validate(*args)

    monkeypatch.setattr(module, "validation_step", noted_validation)
    Trainer(max_epochs=epochs).fit(module, DataLoader(make_data(12), batch_size=4), DataLoader(make_data(4), batch_size=4))
    steps = ["step"] * 3 * epochs
    assert [word for word in said if word != "validation"] == ["step", "first_step", *steps[1:], "last_step"]
    assert said[-2:] == ["last_step", "validation"]
