"""A fitted module's weights and figures as files among a job's outputs, and back into the module that launched it.

safetensors and JSON, nothing that runs code when it is read (ADR-0002). Written by rank 0, read by launching processes.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save, save_file

from gpulayer.errors import Conflict, NotFound, Unsupported

WEIGHTS_FOLDER = "weights"

T = TypeVar("T")


def weights_path(output_dir: Path, fit: int) -> Path:
    """Where the weights of a process's k-th fit lie, counted from 0."""
    return output_dir / WEIGHTS_FOLDER / f"fit{fit}.safetensors"


def figures_path(output_dir: Path, fit: int) -> Path:
    """Where its figures lie."""
    return output_dir / WEIGHTS_FOLDER / f"fit{fit}.json"


def save_fit(output_dir: Path, fit: int, model: torch.nn.Module, figures: Mapping[str, Any]) -> None:
    """Write weights and figures of one fit; each file is there as a whole or not at all.

    Raises:
        Unsupported: the module's state holds something that is no tensor.
    """
    path = weights_path(output_dir, fit)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    save_file(_plain_tensors(model), partial, metadata=_metadata(name_in_main(model)))
    partial.replace(path)
    partial.write_text(json.dumps(figures), encoding="utf-8")
    partial.replace(figures_path(output_dir, fit))


def weights_bytes(model: torch.nn.Module, *, name: str) -> bytes:
    """What `save_fit` writes for a model of this name: equal weights give equal bytes, and so the artifact's digest."""
    return save(_plain_tensors(model), metadata=_metadata(name))


def save_weights(model: torch.nn.Module, path: Path) -> None:
    """Write the weights alone, as they are at this moment.

    Raises:
        Unsupported: the module's state holds something that is no tensor.
    """
    save_file(_plain_tensors(model), path, metadata=_metadata(""))


def load_fit(folder: Path, model: torch.nn.Module, fit: int | None) -> dict[str, Any]:
    """Load a fit's weights into the model, strictly, and return its figures; `fit` None takes the last one.

    Args:
        folder: where a job's outputs were downloaded to.
        model: of the same class and shape as the one that was fitted.
        fit: counted from 0 in the job's script.

    Raises:
        NotFound: the job left no weights for this fit.
        Conflict: they are not this model's.
    """
    path = _find_weights(folder, fit)
    return load_files(path, path.with_suffix(".json"), model)


def load_files(weights: Path, figures: Path, model: torch.nn.Module) -> dict[str, Any]:
    """Load these weights into the model, strictly, and return the figures.

    Raises:
        Conflict: they are not this model's.
    """
    tensors = load_file(weights)
    try:
        model.load_state_dict(tensors, strict=True)
    except RuntimeError as error:
        raise Conflict(
            "The job's weights do not fit the model here.",
            asked=type(model).__name__,
            found=str(error),
            fix="Build the same model here as in the job.",
        ) from error
    read: dict[str, Any] = json.loads(figures.read_text(encoding="utf-8"))
    return read


def has_fit(folder: Path, fit: int) -> bool:
    """Whether this fit's weights are among these outputs."""
    return fit in _fits_in(folder)


def keep_fit(folder: Path, fit: int, destination: Path) -> None:
    """Copy one fit's files from a job's outputs into a folder of fits."""
    found = _find_weights(folder, fit)
    for source, target in ((found, weights_path(destination, fit)), (found.with_suffix(".json"), figures_path(destination, fit))):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def weights_among(outputs: Mapping[str, T]) -> dict[str, T]:
    """Those of a job's outputs that `load_fit` reads."""
    return {path: file for path, file in outputs.items() if PurePosixPath(path).parent.name == WEIGHTS_FOLDER}


def model_name(path: Path) -> str:
    """The name that the fitted model had in the job's script, empty where it had none."""
    with safe_open(path, framework="pt") as file:
        return str((file.metadata() or {}).get("gpulayer.model", ""))


def name_in_main(model: torch.nn.Module) -> str:
    """The global name in the running script that is bound to this model, empty where there is none."""
    namespace = vars(sys.modules["__main__"])
    return next((name for name, value in list(namespace.items()) if value is model and not name.startswith("_")), "")


def _metadata(name: str) -> dict[str, str]:
    # One entry: safetensors writes several in no fixed order, and equal weights would have unequal digests.
    return {"gpulayer.model": name}


def _plain_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise Unsupported(
                f"The module's state holds a {type(value).__name__}; only tensors come back as weights.",
                asked=name,
                fix="Keep it out of the state, or as a tensor (register_buffer).",
            )
        tensor = value.detach().cpu().contiguous()
        # safetensors refuses tensors that share memory: a tied weight is written once under each of its names.
        storage = tensor.untyped_storage().data_ptr()
        tensors[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return tensors


def _fits_in(folder: Path) -> dict[int, Path]:
    # Rank 0 lives on node 0, whose outputs have a folder of their own where there are several nodes.
    candidates = [path for part in (folder, folder / "node0") for path in (part / WEIGHTS_FOLDER).glob("fit*.safetensors")]
    return {int(path.stem.removeprefix("fit")): path for path in candidates if path.stem.removeprefix("fit").isdigit()}


def _find_weights(folder: Path, fit: int | None) -> Path:
    found = _fits_in(folder)
    wanted = max(found, default=None) if fit is None else fit
    if wanted is None or wanted not in found:
        raise NotFound(
            "The job left no weights for this fit.",
            asked="the last fit" if fit is None else f"fit {fit}",
            found=", ".join(f"fit {number}" for number in sorted(found)) or "none",
            fix="Check that the script reaches the same Trainer.fit call in the job as here.",
        )
    return found[wanted]
