import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gpulayer.errors import Conflict, NotFound, Unsupported
from gpulayer.pytorch.weights import (
    figures_path,
    has_fit,
    keep_fit,
    load_fit,
    model_name,
    save_fit,
    weights_among,
    weights_bytes,
    weights_path,
)


def test_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, other = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    monkeypatch.setattr(sys.modules["__main__"], "net", model, raising=False)
    save_fit(tmp_path, 1, model, {"callback_metrics": {"a": 1.5}, "history": []})
    assert sorted(path.name for path in (tmp_path / "weights").iterdir()) == ["fit1.json", "fit1.safetensors"]
    assert model_name(weights_path(tmp_path, 1)) == "net"
    assert load_fit(tmp_path, other, 1) == {"callback_metrics": {"a": 1.5}, "history": []}
    assert torch.equal(model.weight, other.weight)
    # The launching kernel recognises the artifact by the digest of these bytes.
    assert weights_path(tmp_path, 1).read_bytes() == weights_bytes(other, name="net")


def test_a_model_without_a_name(tmp_path: Path) -> None:
    save_fit(tmp_path, 0, torch.nn.Linear(1, 1), {})
    assert model_name(weights_path(tmp_path, 0)) == ""


def test_several_nodes_and_the_last_fit(tmp_path: Path) -> None:
    for fit in (0, 2):
        save_fit(tmp_path / "node0", fit, torch.nn.Linear(1, 1), {"fit": fit})
    assert load_fit(tmp_path, torch.nn.Linear(1, 1), None) == {"fit": 2}
    with pytest.raises(NotFound, match="fit 1"):
        load_fit(tmp_path, torch.nn.Linear(1, 1), 1)


def test_another_models_weights_are_refused(tmp_path: Path) -> None:
    save_fit(tmp_path, 0, torch.nn.Linear(1, 1), {})
    with pytest.raises(Conflict, match="do not fit the model"):
        load_fit(tmp_path, torch.nn.Linear(2, 1), 0)


def test_tied_weights_come_back_under_both_names(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[1].weight = model[0].weight
    save_fit(tmp_path, 0, model, {})
    assert set(load_file(weights_path(tmp_path, 0))) == set(model.state_dict())
    load_fit(tmp_path, model, 0)


def test_only_tensors(tmp_path: Path) -> None:
    class Odd(torch.nn.Linear):
        def get_extra_state(self):
            return {"a": 1}

    with pytest.raises(Unsupported, match="dict"):
        save_fit(tmp_path, 0, Odd(1, 1), {})
    assert not weights_path(tmp_path, 0).exists()


def test_figures_may_be_nan(tmp_path: Path) -> None:
    save_fit(tmp_path, 0, torch.nn.Linear(1, 1), {"loss": float("nan")})
    assert json.loads(figures_path(tmp_path, 0).read_text())["loss"] != 0


def test_fits_are_kept_and_told_apart_from_other_outputs(tmp_path: Path) -> None:
    save_fit(tmp_path / "job" / "node0", 1, torch.nn.Linear(1, 1), {"a": 1})
    keep_fit(tmp_path / "job", 1, tmp_path / "kept")
    assert [has_fit(tmp_path / "kept", fit) for fit in (0, 1)] == [False, True]
    assert load_fit(tmp_path / "kept", torch.nn.Linear(1, 1), 1) == {"a": 1}
    assert weights_among({"node0/weights/fit1.json": 1, "weights/fit0.safetensors": 2, "plots/weights.png": 3}) == {
        "node0/weights/fit1.json": 1,
        "weights/fit0.safetensors": 2,
    }
