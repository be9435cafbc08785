import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

from gpulayer.errors import InvalidSpec, Unsupported
from gpulayer.pytorch import Runtime
from gpulayer.pytorch.rank_context import RankContext
from gpulayer.pytorch.runtime import _kernels_folder, resolve_device


def test_one_process() -> None:
    runtime = Runtime("cpu")
    assert (runtime.rank, runtime.local_rank, runtime.world_size, runtime.is_rank_zero) == (0, 0, 1, True)
    assert runtime.device == torch.device("cpu")
    assert runtime.gather({"a": 1}) == [{"a": 1}]
    runtime.barrier()
    tensor = torch.ones(2, requires_grad=True)
    reduced = runtime.all_reduce(tensor)
    assert torch.equal(reduced, tensor)
    assert not reduced.requires_grad
    module, loader = torch.nn.Linear(1, 1), DataLoader([1, 2])
    assert runtime.setup_module(module) is module
    assert runtime.setup_dataloader(loader) is loader
    runtime.teardown()


def test_output_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Runtime().output_dir.resolve() == tmp_path / "gpulayer_runs" / "here"
    monkeypatch.setenv("GPULAYER_JOB_ID", "j-1")
    monkeypatch.setenv("GPULAYER_OUTPUT_DIR", str(tmp_path / "out"))
    assert Runtime().output_dir == tmp_path / "out"
    assert (tmp_path / "out").is_dir()


def test_output_dir_in_a_kernel_lies_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(execution_count=1, user_ns={})))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    _kernels_folder.cache_clear()
    runtime = Runtime()
    assert [path.name for path in tmp_path.rglob("*")] == ["tmp"]
    assert runtime.output_dir == Runtime().output_dir
    assert runtime.output_dir.parent == tmp_path / "tmp"
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]
    _kernels_folder.cache_clear()


def test_the_granted_device_counts() -> None:
    job = RankContext(job_id="j-1", is_rank=True, accelerator="cpu")
    assert resolve_device("auto", job) == resolve_device("cpu", job) == torch.device("cpu")
    with pytest.raises(InvalidSpec) as refused:
        resolve_device("cuda", job)
    assert "accelerator='cuda'" in str(refused.value)
    assert "granted cpu" in str(refused.value)


def test_auto_prefers_cuda_then_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve_device("auto", RankContext()).type == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    assert resolve_device("auto", RankContext(local_rank=1)) == torch.device("cuda", 1)
    assert resolve_device("rocm", RankContext()) == torch.device("cuda", 0)
    with pytest.raises(Unsupported, match="more ranks"):
        resolve_device("cuda", RankContext(local_rank=2))


def test_a_device_that_torch_does_not_drive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert resolve_device("auto", RankContext()).type == "cpu"
    for kind in ("cuda", "mps"):
        with pytest.raises(Unsupported):
            resolve_device(kind, RankContext())
    with pytest.raises(InvalidSpec, match="no such accelerator"):
        resolve_device("tpu", RankContext())


def test_mps_is_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(InvalidSpec, match="MPS"):
        resolve_device("mps", RankContext(world_size=2))
