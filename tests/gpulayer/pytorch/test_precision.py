import pytest
import torch

from gpulayer.errors import InvalidSpec
from gpulayer.pytorch.precision import SUPPORTED, Precision, check_precision

TABLE = {
    "32-true": {"cpu": True, "cuda": True, "mps": True},
    "bf16-mixed": {"cpu": True, "cuda": True, "mps": False},
    "16-mixed": {"cpu": False, "cuda": True, "mps": False},
}


@pytest.mark.parametrize(
    ("precision", "device", "runs"), [(name, device, runs) for name, row in TABLE.items() for device, runs in row.items()]
)
def test_table(precision: str, device: str, runs: bool) -> None:
    if runs:
        check_precision(precision, device)
        return
    with pytest.raises(InvalidSpec) as refused:
        check_precision(precision, device)
    assert device in str(refused.value)
    assert "32-true" in str(refused.value)


def test_names() -> None:
    assert list(SUPPORTED) == list(TABLE)
    with pytest.raises(InvalidSpec, match="no such precision"):
        check_precision("64-true")


def test_bf16_computes_in_bf16_and_keeps_32_bit_weights() -> None:
    precision = Precision("bf16-mixed", torch.device("cpu"))
    layer = torch.nn.Linear(2, 2)
    with precision.forward_context():
        output = layer(torch.ones(1, 2))
    assert output.dtype == torch.bfloat16
    precision.backward(output.float().sum())
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == layer.weight.dtype == torch.float32


def test_refused_before_anything_runs() -> None:
    with pytest.raises(InvalidSpec, match="16-mixed needs cuda"):
        Precision("16-mixed", torch.device("cpu"))
