import pytest
import torch

from gpulayer.errors import InvalidSpec, Unsupported
from gpulayer.pytorch import Module
from gpulayer.pytorch.module import step_logs


def test_logged_tensors_stay_tensors_without_their_graph() -> None:
    module = Module()
    module.log("loss", torch.ones(1, requires_grad=True) * 2)
    module.log("rate", 0.5, batch_size=7)
    value, weight = step_logs(module)["loss"]
    assert isinstance(value, torch.Tensor)
    assert value.grad_fn is None
    assert weight is None
    assert step_logs(module)["rate"] == (0.5, 7)


def test_a_logged_value_is_one_number() -> None:
    with pytest.raises(InvalidSpec, match="one number"):
        Module().log("x", torch.ones(2))


def test_what_is_missing_is_named() -> None:
    class Empty(Module):
        pass

    for call in (lambda m: m.training_step(None, 0), lambda m: m.validation_step(None, 0), lambda m: m.configure_optimizers()):
        with pytest.raises(Unsupported, match="Empty has no"):
            call(Empty())
